// The flags about the program itself: config files and messages, and settings of TensorFlow's runtime alone.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

void declare_program_flags(FlagTable& table);
void declare_foreign_flags(FlagTable& table);

}  // namespace trainyard::core
