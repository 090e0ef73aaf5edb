// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::data {

// Declares the flag that decides what happens to classes that the training does not know.
void declare_unknown_class_flag(core::FlagTable& table, const char* group);
// Declares the flags that say which data set is read, and where it is.
void declare_source_flags(core::FlagTable& table);
// Declares all flags of the input: source, images, pipeline.
void declare_input_flags(core::FlagTable& table);
// Declares --synthetic, for commands that can run without data.
void declare_synthetic_flag(core::FlagTable& table);

}  // namespace trainyard::data
