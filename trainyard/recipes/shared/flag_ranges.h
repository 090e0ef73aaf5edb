// Where the meaning of a number flag ends. tf_cnn_benchmarks declares bounds for three of its flags; a value beyond
// these here would run for ever, take all memory or mean nothing.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Throws kInvalidArgument for the first flag of `values` that is out of its range, naming it. Flags that the table
// lacks are passed over, so that commands with a part of the flags check theirs alike.
void check_flag_ranges(const core::FlagValues& values);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
