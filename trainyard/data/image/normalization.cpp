#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

Normalization Normalization::minus_mean(const Rgb& mean) {
  return standardized(mean, {1, 1, 1});
}

Normalization Normalization::standardized(const Rgb& mean, const Rgb& standard_deviation) {
  Normalization result;
  for (size_t c = 0; c < 3; ++c) {
    if (!(standard_deviation[c] > 0)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "standard deviation of a channel is out of range",
                         .expected = "above 0",
                         .actual = fmt::format("{}", standard_deviation[c])});
    }
    result.scale[c] = 1 / standard_deviation[c];
    result.shift[c] = -mean[c] / standard_deviation[c];
  }
  return result;
}

void Normalization::apply(float* image, int64_t pixels) const {
  for (size_t c = 0; c < 3; ++c, image += pixels) {
    for (int64_t i = 0; i < pixels; ++i) image[i] = image[i] * scale[c] + shift[c];
  }
}

}  // namespace trainyard::data
