// Converts pixels in [0, 255] to the scale that a model expects.
#pragma once

#include <array>
#include <cstdint>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

using Rgb = std::array<float, 3>;

inline constexpr Rgb kImagenetChannelMeans = {123.68F, 116.78F,
                                              103.94F};  // of tf_cnn_benchmarks and TensorFlow's official models
// 255 times (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225): torchvision, Paddle, Tensorpack.
inline constexpr Rgb kImagenetMean = {123.675F, 116.28F, 103.53F};
inline constexpr Rgb kImagenetStandardDeviation = {58.395F, 57.12F, 57.375F};

// Computes pixel * scale + shift, by channel.
struct Normalization {
  Rgb scale = {1 / 127.5F, 1 / 127.5F, 1 / 127.5F};
  Rgb shift = {-1, -1, -1};

  // Returns pixel / 127.5 - 1, which is in [-1, 1].
  [[nodiscard]] static Normalization symmetric() { return {}; }
  // Returns pixel - mean.
  [[nodiscard]] static Normalization minus_mean(const Rgb& mean);
  // Returns (pixel - mean) / standard_deviation. Throws kInvalidArgument when a deviation is not above 0.
  [[nodiscard]] static Normalization standardized(const Rgb& mean, const Rgb& standard_deviation);

  bool operator==(const Normalization&) const = default;

  // Normalizes `image`, float [3, pixels], in place.
  void apply(float* image, int64_t pixels) const;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
