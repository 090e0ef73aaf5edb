// The flags of this room.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::models {

// The most that --num_classes takes: more than the identities in any data set of faces.
inline constexpr int64_t kMostClasses = int64_t{1} << 24;

void declare_flags(core::FlagTable& table);

}  // namespace trainyard::models
TRAINYARD_EXPORT_END
