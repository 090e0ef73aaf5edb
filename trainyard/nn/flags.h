// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::nn {

void declare_flags(core::FlagTable& table);
// Declares the flags that enable fusions, which declare_flags() declares, too.
void declare_fusion_flags(core::FlagTable& table, const char* group);

}  // namespace trainyard::nn
