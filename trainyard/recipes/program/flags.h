// The command line of `trainyard program`: the options of the example, with dashes or underscores.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/program/arguments.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes::program {

void declare_flags(core::FlagTable& table);
// Throws kInvalidArgument for a list that does not hold numbers, and for a text that is neither yes nor no.
Arguments read_arguments(const core::FlagValues& values);

}  // namespace trainyard::recipes::program
TRAINYARD_EXPORT_END
