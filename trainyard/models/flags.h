// The flags of this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/graph/ops.h"

namespace trainyard::models {

// The most that --num_classes takes: more than the identities in any data set of faces.
inline constexpr int64_t kMostClasses = int64_t{1} << 24;

void declare_flags(core::FlagTable& table);

// Declares --image_size. `unset` describes the default: "the model's own".
void declare_image_size_flag(core::FlagTable& table, const char* group, const std::string& unset);
// Returns --image_size, or 0 when it is not given. Throws as parse_image_size() does.
nn::Size2d read_image_size(const core::FlagValues& values);
// Reads "224" as 224 x 224, and "160x192" as a height of 160 and a width of 192 pixels. Throws kInvalidArgument for
// another text and for sides that are not 1 to kLongestImageSide.
nn::Size2d parse_image_size(std::string_view text);

}  // namespace trainyard::models
