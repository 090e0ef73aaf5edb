// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::parallel {

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::parallel
