// Layer norm's kernels against their definition in double precision.
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::layer_norm_test {
namespace {

TRAINYARD_KERNEL_TEST(LayerNormTest);

// Whole tiles of pixels and rests; whole blocks of channels and rests; several chunks of sums.
std::vector<MapShape> shapes_of(int64_t block) {
  std::vector<MapShape> shapes;
  for (int64_t channels : {1, 3, 16, 40, 96}) {
    for (int64_t pixels : {1, 7, 16, 21, 135}) shapes.push_back({2, channels, pixels, 1, block});
  }
  return shapes;
}

constexpr double kEpsilon = 1e-3;

size_t place(const MapShape& shape, int64_t n, int64_t y) {
  return static_cast<size_t>(n * shape.pixels() + y);
}

struct Statistics {
  std::vector<float> mean, inverse;
};

// Returns the statistics by their definition. The map has a width of 1.
Statistics statistics_of(const TestMap& map) {
  const MapShape& shape = map.shape();
  Statistics result;
  for (int64_t n = 0; n < shape.batch; ++n) {
    for (int64_t y = 0; y < shape.height; ++y) {
      double mean = 0, variance = 0;
      const auto channels = static_cast<double>(shape.channels);
      for (int64_t c = 0; c < shape.channels; ++c) mean += map.at(n, c, y) / channels;
      for (int64_t c = 0; c < shape.channels; ++c) variance += std::pow(map.at(n, c, y) - mean, 2) / channels;
      result.mean.push_back(static_cast<float>(mean));
      result.inverse.push_back(static_cast<float>(1 / std::sqrt(variance + kEpsilon)));
    }
  }
  return result;
}

TYPED_TEST(LayerNormTest, Forward) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : shapes_of(TypeParam::kBlock)) {
      const TestMap input = TestMap::random(shape, dtype, 1);
      const std::vector<float> weight = random_floats(shape.channels, 2), bias = random_floats(shape.channels, 3);
      const Statistics expected = statistics_of(input);
      TestMap output(shape, dtype);
      Statistics actual{std::vector<float>(expected.mean.size()), std::vector<float>(expected.mean.size())};
      TypeParam::layer_norm_forward({.shape = shape,
                                     .dtype = dtype,
                                     .epsilon = kEpsilon,
                                     .input = input.data(),
                                     .weight = weight.data(),
                                     .bias = bias.data(),
                                     .output = output.data(),
                                     .mean = actual.mean.data(),
                                     .inverse_deviation = actual.inverse.data()});
      output.expect(
          [&](int64_t n, int64_t c, int64_t y, int64_t) {
            const size_t pixel = place(shape, n, y);
            const double value = (input.at(n, c, y) - expected.mean[pixel]) * expected.inverse[pixel];
            return value * weight[static_cast<size_t>(c)] + bias[static_cast<size_t>(c)];
          },
          1e-5);
      for (size_t i = 0; i < expected.mean.size(); ++i) {
        EXPECT_NEAR(actual.mean[i], expected.mean[i], 1e-6);
        EXPECT_NEAR(actual.inverse[i], expected.inverse[i], 1e-5 * expected.inverse[i]);
      }
    }
  }
}

TYPED_TEST(LayerNormTest, Backward) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : shapes_of(TypeParam::kBlock)) {
      const TestMap input = TestMap::random(shape, dtype, 1), gradient = TestMap::random(shape, dtype, 4);
      const std::vector<float> weight = random_floats(shape.channels, 2);
      const Statistics s = statistics_of(input);
      const auto xhat = [&](int64_t n, int64_t c, int64_t y) {
        return (input.at(n, c, y) - s.mean[place(shape, n, y)]) * double{s.inverse[place(shape, n, y)]};
      };
      const auto expected = [&](int64_t n, int64_t c, int64_t y, int64_t) {
        double mean = 0, product = 0;
        const auto channels = static_cast<double>(shape.channels);
        const auto d = [&](int64_t k) { return gradient.at(n, k, y) * weight[static_cast<size_t>(k)]; };
        for (int64_t k = 0; k < shape.channels; ++k) {
          mean += d(k) / channels;
          product += d(k) * xhat(n, k, y) / channels;
        }
        return s.inverse[place(shape, n, y)] * (d(c) - mean - xhat(n, c, y) * product);
      };
      TestMap fresh(shape, dtype), added = TestMap::random(shape, dtype, 5);
      const auto padded = static_cast<size_t>(shape.padded_channels());
      std::vector<float> weights(padded + 1, 99), biases(padded + 1, 99);
      LayerNormBackward a{.shape = shape,
                          .dtype = dtype,
                          .gradient = gradient.data(),
                          .input = input.data(),
                          .weight = weight.data(),
                          .mean = s.mean.data(),
                          .inverse_deviation = s.inverse.data(),
                          .input_gradient = fresh.data(),
                          .weight_gradient = weights.data(),
                          .bias_gradient = biases.data()};
      expect_fresh_and_added(TypeParam::layer_norm_backward, a, fresh, added, expected, 1e-4);
      for (int64_t c = 0; c < shape.channels; ++c) {
        double weight_sum = 0, bias_sum = 0;
        for (int64_t n = 0; n < shape.batch; ++n) {
          for (int64_t y = 0; y < shape.height; ++y) {
            weight_sum += gradient.at(n, c, y) * xhat(n, c, y);
            bias_sum += gradient.at(n, c, y);
          }
        }
        EXPECT_NEAR(weights[static_cast<size_t>(c)], weight_sum, 1e-4 * (1 + std::abs(weight_sum)));
        EXPECT_NEAR(biases[static_cast<size_t>(c)], bias_sum, 1e-4 * (1 + std::abs(bias_sum)));
      }
      EXPECT_EQ(weights.back(), 99);
      EXPECT_EQ(biases.back(), 99);
    }
  }
}

TYPED_TEST(LayerNormTest, BackwardHasTheSameBitsForAnyNumberOfThreads) {
  const MapShape shape = this->shape(3, 40, 135);
  const TestMap input = TestMap::random(shape, DataType::kFloat, 1),
                gradient = TestMap::random(shape, DataType::kFloat, 4);
  const std::vector<float> weight = random_floats(shape.channels, 2);
  const Statistics s = statistics_of(input);
  expect_same_for_any_threads([&] {
    TestMap output(shape, DataType::kFloat);
    std::vector<float> sums(static_cast<size_t>(2 * shape.padded_channels()));
    TypeParam::layer_norm_backward({.shape = shape,
                                    .gradient = gradient.data(),
                                    .input = input.data(),
                                    .weight = weight.data(),
                                    .mean = s.mean.data(),
                                    .inverse_deviation = s.inverse.data(),
                                    .input_gradient = output.data(),
                                    .weight_gradient = sums.data(),
                                    .bias_gradient = sums.data() + shape.padded_channels()});
    return sums;
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::layer_norm_test
