// The parameter table of this front end: the 138 flags of tf_cnn_benchmarks and ours, from all parts of the library.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Returns the flags with the defaults of the dialect. Made at the first call; lives as long as the program.
// Thread-safe.
const core::FlagTable& tf_cnn_flags(Dialect dialect = Dialect::kTfCnnBenchmarks);

// Returns the names of the most used flags of a training, or of an evaluation, in the order of --help.
const std::vector<std::string>& common_flags(RunMode mode);

// Returns docs/flags.md: the flags with the defaults of both dialects.
std::string tf_cnn_flags_page();

}  // namespace trainyard::frontends
