// The parameters of train_ctl() as flags of a command, with the example's names, short forms and defaults.
#pragma once

#include <iosfwd>

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/train_ctl/params.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

void declare_train_ctl_flags(core::FlagTable& table);
TrainCtlParams read_train_ctl_params(const core::FlagValues& values);
// Prints "Script arguments:" and a line "  --flag=value" for each flag but --help; one that is not set has no value.
void print_script_arguments(const core::FlagValues& values, std::ostream& out);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
