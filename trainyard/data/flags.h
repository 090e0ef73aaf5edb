// The flags of this room.
#pragma once

#include "trainyard/core/flags.h"

namespace trainyard::data {

// Which data set, and where it is.
void declare_source_flags(core::FlagTable& table);
// Of all that input consists of: source, images, pipeline.
void declare_input_flags(core::FlagTable& table);

}  // namespace trainyard::data
