// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::train {

void declare_flags(core::FlagTable& table);

// Declares --weights_of: which weights of a checkpoint a command takes.
void declare_weights_of_flag(core::FlagTable& table, const char* group);
// Returns true where it asks for averaged weights, as it does where it is not given.
bool wants_averaged_weights(const core::FlagValues& values);

}  // namespace trainyard::train
