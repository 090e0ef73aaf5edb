// NaN and infinity in what a checkpoint holds. Weights with one of them are of no use to anyone, so they are neither
// saved nor loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace trainyard::train {

// Returns true when a tensor must be finite: all of a floating-point type, except single numbers that are not the
// model's, such as a loss scale or a best value so far, which may rightly be infinite, and what monitors have seen.
bool must_be_finite(std::string_view name, at::ScalarType dtype, int64_t dimensions);

// Returns how many elements are NaN or infinite in a piece of a tensor's bytes, which holds whole elements; 0 for types
// that are not floating-point. One pass at the speed of memory.
int64_t count_non_finite(at::ScalarType dtype, std::span<const std::byte> bytes);

}  // namespace trainyard::train
