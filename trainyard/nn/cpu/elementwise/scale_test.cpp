#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::scale_test {
namespace {

TRAINYARD_KERNEL_TEST(ScaleTest);

size_t in_rows(const MapShape& shape, int64_t n, int64_t c) {
  return static_cast<size_t>(n * shape.channels + c);
}

TYPED_TEST(ScaleTest, ChannelsForwardAndBackward) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      const TestMap input = TestMap::random(shape, dtype, 1), gradient = TestMap::random(shape, dtype, 2);
      const auto count = static_cast<size_t>(shape.batch * shape.channels);
      const std::vector<float> factor = random_floats(static_cast<int64_t>(count), 3);
      TestMap output(shape, dtype), fresh(shape, dtype), added = input;
      TypeParam::scale_channels_forward(
          {.shape = shape, .dtype = dtype, .input = input.data(), .factor = factor.data(), .output = output.data()});
      output.expect([&](int64_t n, int64_t c, int64_t y, int64_t x) {
        return input.at(n, c, y, x) * factor[in_rows(shape, n, c)];
      });
      const TestMap residual = TestMap::random(shape, dtype, 4);
      TestMap sum(shape, dtype);
      TypeParam::scale_channels_forward({.shape = shape,
                                         .dtype = dtype,
                                         .input = input.data(),
                                         .factor = factor.data(),
                                         .residual = residual.data(),
                                         .output = sum.data()});
      sum.expect([&](int64_t n, int64_t c, int64_t y, int64_t x) {
        return input.at(n, c, y, x) * factor[in_rows(shape, n, c)] + residual.at(n, c, y, x);
      });

      const auto back = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
        return gradient.at(n, c, y, x) * factor[in_rows(shape, n, c)];
      };
      std::vector<float> factor_gradient(count + 1, 99);
      ScaleChannelsBackward a{.shape = shape,
                              .dtype = dtype,
                              .gradient = gradient.data(),
                              .input = input.data(),
                              .factor = factor.data(),
                              .input_gradient = fresh.data(),
                              .factor_gradient = factor_gradient.data()};
      TypeParam::scale_channels_backward(a);
      fresh.expect(back);
      std::vector<double> sums(count), sizes(count);
      input.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
        const double product = input.at(n, c, y, x) * gradient.at(n, c, y, x);
        sums[in_rows(shape, n, c)] += product;
        sizes[in_rows(shape, n, c)] += std::abs(product);
      });
      for (size_t i = 0; i < count; ++i) EXPECT_NEAR(factor_gradient[i], sums[i], 1e-6 * sizes[i]);
      EXPECT_EQ(factor_gradient[count], 99) << "written beside the vector";

      a.input_gradient = added.data();
      a.accumulate = true;
      TypeParam::scale_channels_backward(a);
      added.expect([&](auto... at) { return input.at(at...) + back(at...); });
    }
  }
}

TYPED_TEST(ScaleTest, SamplesAndElements) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      for (const bool per_element : {false, true}) {
        const TestMap input = TestMap::random(shape, dtype, 1), before = TestMap::random(shape, dtype, 2);
        const int64_t share = per_element ? shape.channels * shape.pixels() : 1;
        const std::vector<float> factor = random_floats(shape.batch * share, 3);
        const auto expected = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
          const int64_t place = per_element ? (c * shape.height + y) * shape.width + x : 0;
          return input.at(n, c, y, x) * factor[static_cast<size_t>(n * share + place)];
        };
        TestMap output(shape, dtype), added = before, in_place = input;
        ScaleSamples a{.shape = shape,
                       .dtype = dtype,
                       .input = input.data(),
                       .factor = factor.data(),
                       .per_element = per_element,
                       .output = output.data()};
        TypeParam::scale_samples(a);
        output.expect(expected);
        a.output = added.data();
        a.accumulate = true;
        TypeParam::scale_samples(a);
        added.expect([&](auto... at) { return before.at(at...) + expected(at...); });
        a.input = a.output = in_place.data();
        a.accumulate = false;
        TypeParam::scale_samples(a);
        EXPECT_EQ(in_place, output);
      }
    }
  }
}

TYPED_TEST(ScaleTest, IsTheSameForAnyThreads) {
  const MapShape shape = this->shape(1, 17, 29, 37);
  const TestMap input = TestMap::random(shape, DataType::kFloat, 1);
  const std::vector<float> factor = random_floats(17, 3);
  expect_same_for_any_threads([&] {
    TestMap target(shape, DataType::kFloat);
    std::vector<float> factor_gradient(17);
    TypeParam::scale_channels_backward({.shape = shape,
                                        .gradient = input.data(),
                                        .input = input.data(),
                                        .factor = factor.data(),
                                        .input_gradient = target.data(),
                                        .factor_gradient = factor_gradient.data()});
    return std::make_pair(target, factor_gradient);
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::scale_test
