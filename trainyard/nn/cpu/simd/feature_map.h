// The layout of images between the CPU plan's layers: blocks of channels, [batch][channel block][height][width][lane],
// as oneDNN's nChw16c (AVX-512) and nChw8c (AVX2). A channel count that is no multiple of the block is padded with
// lanes that are always zero, forward and backward: other values would corrupt the gradients of weights.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

enum class DataType : uint8_t { kFloat, kBfloat16, kUint8 };

constexpr int64_t size_of(DataType dtype) {
  if (dtype == DataType::kUint8) return 1;
  return dtype == DataType::kFloat ? 4 : 2;
}

struct MapShape {
  int64_t batch = 0, channels = 0, height = 1, width = 1;
  int64_t block = 0;  // lanes: 16 or 8; 4 in a byte map of an image

  // Always inlined: sources that are compiled for higher instruction sets use them too.
  [[gnu::always_inline]] int64_t blocks() const { return (channels + block - 1) / block; }
  [[gnu::always_inline]] int64_t padded_channels() const { return blocks() * block; }
  [[gnu::always_inline]] int64_t pixels() const { return height * width; }
  [[gnu::always_inline]] int64_t elements() const { return batch * padded_channels() * pixels(); }
  bool operator==(const MapShape&) const = default;
};

}  // namespace trainyard::nn::cpu
