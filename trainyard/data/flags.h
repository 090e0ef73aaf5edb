// The flags of this room.
#pragma once

#include "trainyard/core/flags.h"

namespace trainyard::data {

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::data
