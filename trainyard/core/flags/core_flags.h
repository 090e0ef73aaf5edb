// The flags about the program itself: config files, messages, threads and memory.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

void declare_flags(FlagTable& table);

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
