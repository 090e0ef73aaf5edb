// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::train {

// Declare the flags of the steps of a run, and of evaluations.
void declare_run_flags(core::FlagTable& table);
void declare_evaluation_flags(core::FlagTable& table);

// Declares --weights_of, which selects the weights of a checkpoint that a command uses.
void declare_weights_of_flag(core::FlagTable& table, const char* group);
// Returns true when --weights_of selects averaged weights, which is the default.
bool wants_averaged_weights(const core::FlagValues& values);

}  // namespace trainyard::train
