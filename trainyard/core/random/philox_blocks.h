// Many neighbouring blocks of Philox (random.h) at a time: the same numbers eight times as fast.
#pragma once

#include <array>
#include <cstdint>

namespace trainyard::core {

// Writes out[4 * i] to out[4 * i + 3] = philox4x32(counter + i, key), where the first two numbers of `counter` count.
void philox4x32_blocks(const std::array<uint32_t, 4>& counter, std::array<uint32_t, 2> key, uint32_t* out,
                       int64_t blocks);

}  // namespace trainyard::core
