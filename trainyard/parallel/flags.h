// The flags of this room.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
