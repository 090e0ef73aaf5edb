// The flags about the program itself: config files, messages, threads and memory.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

void declare_flags(FlagTable& table);

}  // namespace trainyard::core
