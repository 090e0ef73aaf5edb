// Detects NaN and infinity in checkpoints. Weights that contain them are useless, so they are neither saved nor loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace trainyard::train {

// Returns true when a tensor must be finite: all of a floating-point type, except for the history of monitors and for
// single numbers outside of the model, such as a loss scale or a best value so far, which may be infinite.
bool must_be_finite(std::string_view name, at::ScalarType dtype, int64_t dimensions);

// Returns how many elements are NaN or infinite in a part of a tensor's bytes, which contains whole elements; 0 for
// types that are not floating-point. Makes one pass at the speed of memory.
int64_t count_non_finite(at::ScalarType dtype, std::span<const std::byte> bytes);

}  // namespace trainyard::train
