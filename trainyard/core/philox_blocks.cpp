#include "trainyard/core/philox_blocks.h"

#include <algorithm>

namespace trainyard::core {
namespace {

constexpr int64_t kLanes = 16;
using Lanes = std::array<uint32_t, kLanes>;

}  // namespace

void philox4x32_blocks(const std::array<uint32_t, 4>& counter, std::array<uint32_t, 2> key, uint32_t* out,
                       int64_t blocks) {
  const uint64_t start = counter[0] | uint64_t{counter[1]} << 32;
  for (int64_t first = 0; first < blocks; first += kLanes) {
    Lanes a, b, c, d;
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint64_t count = start + static_cast<uint64_t>(first + i);
      a[i] = static_cast<uint32_t>(count);
      b[i] = static_cast<uint32_t>(count >> 32);
      c[i] = counter[2];
      d[i] = counter[3];
    }
    std::array<uint32_t, 2> round_key = key;
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const uint64_t product0 = uint64_t{0xd2511f53} * a[i], product1 = uint64_t{0xcd9e8d57} * c[i];
        a[i] = static_cast<uint32_t>(product1 >> 32) ^ b[i] ^ round_key[0];
        b[i] = static_cast<uint32_t>(product1);
        c[i] = static_cast<uint32_t>(product0 >> 32) ^ d[i] ^ round_key[1];
        d[i] = static_cast<uint32_t>(product0);
      }
      round_key[0] += 0x9e3779b9;
      round_key[1] += 0xbb67ae85;
    }
    const int64_t here = std::min(kLanes, blocks - first);
    for (int64_t i = 0; i < here; ++i) {
      uint32_t* const block = out + 4 * (first + i);
      block[0] = a[i];
      block[1] = b[i];
      block[2] = c[i];
      block[3] = d[i];
    }
  }
}

}  // namespace trainyard::core
