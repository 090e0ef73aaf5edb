// The parameters of train_ctl() as flags of a command, with the example's names, short forms and defaults.
#pragma once

#include <iosfwd>
#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"

namespace trainyard::frontends {

void declare_train_ctl_flags(core::FlagTable& table);
// Returns the parameters. With --predict, warns of each flag that is given and that predict_ctl() does not read.
TrainCtlParams read_train_ctl_params(const core::FlagValues& values);
// Sets the size of the images, if the flags do not give it, from the newest checkpoint in log_dir, or with --predict
// from the model in export_dir, and logs it. Returns the name of the model: the flag's, else the checkpoint's.
std::string take_saved_choices(const core::FlagValues& values, TrainCtlParams& params);
// Prints "Script arguments:" and a line "  --flag=value" for each flag but --help; one that is not set has no value.
void print_script_arguments(const core::FlagValues& values, std::ostream& out);

}  // namespace trainyard::frontends
