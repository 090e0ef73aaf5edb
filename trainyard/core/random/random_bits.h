// The integer arithmetic behind random.h, as constexpr functions, which the compiler of GPU kernels takes, too.
#pragma once

#include <array>
#include <cstdint>

namespace trainyard::core::random_bits {

inline constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection in which each input bit moves half of the
// output bits, so ids 0, 1, 2, ... give unrelated counters.
constexpr uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Returns Philox's key of a stream. `name_hash` is stable_hash(name).
constexpr uint64_t stream_key(uint64_t seed, uint64_t name_hash) {
  return mix(mix(seed + kGoldenRatio) ^ name_hash);
}

// Returns the upper half of a stream's counters, by stable_hash(name).
constexpr uint64_t stream_identity(uint64_t name_hash) {
  return mix(name_hash + kGoldenRatio);
}
// Returns the upper half of the counters of a stream with one more id.
constexpr uint64_t with_id(uint64_t identity, uint64_t id) {
  return mix((identity ^ mix(id + kGoldenRatio)) + kGoldenRatio);
}

// Returns a number in [0, 1) with 24 random bits. Converts through a signed number, because AVX2 converts only signed
// ones.
constexpr float unit_interval(uint32_t number) {
  return static_cast<float>(static_cast<int32_t>(number >> 8)) * 0x1p-24f;
}

// Computes core::philox4x32().
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53} * counter[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

constexpr std::array<uint32_t, 2> halves(uint64_t value) {
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

}  // namespace trainyard::core::random_bits
