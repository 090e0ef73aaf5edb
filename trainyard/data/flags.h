// The flags of this room.
#pragma once

#include "trainyard/core/flags/flags.h"

namespace trainyard::data {

// What becomes of classes that the training does not know.
void declare_unknown_class_flag(core::FlagTable& table, const char* group);
// Which data set, and where it is.
void declare_source_flags(core::FlagTable& table);
// Of all that input consists of: source, images, pipeline.
void declare_input_flags(core::FlagTable& table);

}  // namespace trainyard::data
