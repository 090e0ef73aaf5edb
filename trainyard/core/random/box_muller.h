// Normal numbers from uniform ones: Box, Muller, "A note on the generation of random normal deviates", 1958. It uses
// only additions, multiplications, a division and a square root, so the bits are the same everywhere and several pairs
// are computed at a time.
#pragma once

#include <cstdint>

namespace trainyard::core {

// Computes first[i], second[i] = r cos(t), r sin(t), where r^2 = -2 log((radius[i] + 1) / 2^32) and t = 2 pi angle[i] /
// 2^32. The uniform number of the radius is never 0, so the logarithm is finite and the tail reaches 6.7 standard
// deviations.
void box_muller(const uint32_t* radius, const uint32_t* angle, float* first, float* second, int64_t count);

}  // namespace trainyard::core
