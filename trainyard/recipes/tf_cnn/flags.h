// The parameter table of the benchmark door: the 138 flags of tf_cnn_benchmarks and ours, from all rooms.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/tf_cnn/dialect.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Returns the flags with the defaults of the dialect. Made at the first call; lives as long as the program.
// Thread-safe.
const core::FlagTable& tf_cnn_flags(Dialect dialect = Dialect::kTfCnnBenchmarks);

// Returns docs/flags.md: the flags with the defaults of both dialects.
std::string tf_cnn_flags_page();

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
