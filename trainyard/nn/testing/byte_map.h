// Byte maps for tests of kernels, and the definition of what such kernels write.
#pragma once

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu {

// A byte map whose pad lanes hold anything.
class ByteMap {
 public:
  ByteMap(const MapShape& shape, uint64_t seed) : shape_(shape), bytes_(shape.elements()) {
    core::RandomStream stream(seed, "bytes_for_test", {});
    for (int64_t i = 0; i < shape.elements(); ++i) bytes_.data()[i] = static_cast<uint8_t>(stream.uniform() * 256);
  }

  const MapShape& shape() const { return shape_; }
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  int64_t index(int64_t n, int64_t c, int64_t y, int64_t x) const {
    const int64_t plane = n * shape_.blocks() + c / shape_.block;
    return ((plane * shape_.height + y) * shape_.width + x) * shape_.block + c % shape_.block;
  }
  int32_t at(int64_t n, int64_t c, int64_t y = 0, int64_t x = 0) const { return data()[index(n, c, y, x)]; }

  // Expects the bytes expected(sample, channel, row, column), and nothing written outside of the map.
  template <typename Expected>
  void expect(Expected expected) const {
    int wrong = 0;
    for (int64_t n = 0; n < shape_.batch; ++n) {
      for (int64_t c = 0; c < shape_.channels; ++c) {
        for (int64_t y = 0; y < shape_.height; ++y) {
          for (int64_t x = 0; x < shape_.width; ++x) {
            const int32_t want = expected(n, c, y, x), have = at(n, c, y, x);
            if (have == want || ++wrong > 3) continue;
            ADD_FAILURE() << "at (" << n << ", " << c << ", " << y << ", " << x << "): " << have << " instead of "
                          << want;
          }
        }
      }
    }
    EXPECT_LE(wrong, 3) << "values are wrong altogether";
    EXPECT_TRUE(bytes_.fences_hold()) << "written beside the map";
  }
  // Compares channels only.
  bool operator==(const ByteMap& other) const {
    for (int64_t n = 0; n < shape_.batch; ++n) {
      for (int64_t c = 0; c < shape_.channels; ++c) {
        for (int64_t p = 0; p < shape_.pixels(); ++p) {
          if (at(n, c, p / shape_.width, p % shape_.width) != other.at(n, c, p / shape_.width, p % shape_.width)) {
            return false;
          }
        }
      }
    }
    return true;
  }

 private:
  MapShape shape_;
  TestBytes bytes_;
};

// Returns the byte that stands for `value`, by the definition in quantized_bytes_arguments.h.
inline int32_t quantized_byte(float value, float inverse_scale, uint8_t zero_point) {
  const float quotient = value * inverse_scale;
  if (std::isnan(quotient)) return zero_point;
  const double rounded = std::nearbyint(static_cast<double>(quotient)) + zero_point;  // ties to even
  return static_cast<int32_t>(std::clamp(rounded, 0.0, 255.0));
}

inline float bounded(UnitActivation activation, float value) {
  if (activation == UnitActivation::kRelu) return std::max(value, 0.0F);
  if (activation == UnitActivation::kRelu6) return std::clamp(value, 0.0F, 6.0F);
  return value;
}

}  // namespace trainyard::nn::cpu
