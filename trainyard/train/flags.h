// The flags of this room.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
