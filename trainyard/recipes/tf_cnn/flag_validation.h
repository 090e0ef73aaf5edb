// Combinations of flags that make no sense, refused in the order and with the texts of tf_cnn_benchmarks.
//
// What needs the data set, the model or the machine is checked where those are known. Call validate_flags
// before core::check_dispositions: a mistake is reported as the mistake it is, even where a flag is not built yet.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Throws kInvalidArgument for the first condition that holds.
void validate_flags(const core::FlagValues& values);

// What the all-reduce benchmark asks for beyond that.
void validate_all_reduce_flags(const core::FlagValues& values);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
