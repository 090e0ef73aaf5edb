// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::train {

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::train
