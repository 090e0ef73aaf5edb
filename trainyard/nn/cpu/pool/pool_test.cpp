// Pooling against its definition in double, window by window.
#include <limits>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::pool_test {
namespace {

struct Case {
  MapShape in, out;
  Window window;
  int64_t bottom = 0, right = 0;  // padding, for averages that count it
};

// Returns the number of windows in one direction. With `hang` the last one may reach beyond the padding.
int64_t outputs(int64_t extent, int64_t kernel, int64_t stride, int64_t before, int64_t after, bool hang) {
  const int64_t room = extent + before + after - kernel;
  const int64_t count = (hang ? (room + stride - 1) / stride : room / stride) + 1;
  return hang && (count - 1) * stride >= extent + before ? count - 1 : count;  // nn::Pool::ceil_mode
}

template <typename Kernels>
class PoolTest : public KernelTest<Kernels> {
 protected:
  static Case pooled(const MapShape& in, Window w, int64_t bottom, int64_t right, bool hang = false) {
    MapShape out = in;
    out.height = outputs(in.height, w.kernel_height, w.stride_height, w.top, bottom, hang);
    out.width = outputs(in.width, w.kernel_width, w.stride_width, w.left, right, hang);
    return {in, out, w, bottom, right};
  }
  static std::vector<Case> cases() {
    std::vector<Case> cases;
    for (int64_t channels : {1, 3, 16, 17, 40}) {
      cases.push_back(pooled(KernelTest<Kernels>::shape(3, channels, 9, 8), {3, 3, 2, 2, 1, 1}, 1, 1));
    }
    const MapShape odd = KernelTest<Kernels>::shape(1, 17, 11, 7);
    cases.push_back(pooled(odd, {3, 3, 2, 2, 0, 0}, 0, 0, true));
    cases.push_back(pooled(odd, {3, 3, 2, 2, 0, 1}, 1, 1));  // as TensorFlow's SAME pads even extents
    cases.push_back(pooled(odd, {2, 2, 2, 2, 0, 0}, 0, 0));
    cases.push_back(pooled(odd, {2, 2, 2, 2, 0, 0}, 0, 0, true));
    cases.push_back(pooled(odd, {3, 3, 1, 1, 1, 1}, 1, 1));
    cases.push_back(pooled(odd, {4, 3, 1, 3, 2, 0}, 1, 2));
    cases.push_back(pooled(odd, {2, 5, 3, 2, 0, 3}, 1, 1, true));
    cases.push_back(pooled(odd, {1, 1, 3, 2, 0, 0}, 0, 0));
    cases.push_back(pooled(odd, {15, 17, 1, 1, 3, 6}, 2, 5));    // larger than the image
    cases.push_back(pooled(odd, {12, 21, 2, 2, 1, 10}, 1, 10));  // 252 pixels
    cases.push_back(pooled(odd, {11, 7, 1, 1, 0, 0}, 0, 0));     // the whole image
    cases.push_back(pooled(odd, {2, 2, 2, 2, 3, 4}, 4, 3));      // some windows lie beside the image
    return cases;
  }
};
TYPED_TEST_SUITE(PoolTest, Compilations, CompilationName);

// Calls use(row, column) for the pixels of the image in the window of output pixel (y, x).
template <typename Use>
void each_covered(const Case& c, int64_t y, int64_t x, Use use) {
  const Window& w = c.window;
  for (int64_t i = 0; i < w.kernel_height; ++i) {
    for (int64_t j = 0; j < w.kernel_width; ++j) {
      const int64_t row = y * w.stride_height - w.top + i, column = x * w.stride_width - w.left + j;
      if (row >= 0 && row < c.in.height && column >= 0 && column < c.in.width) use(row, column);
    }
  }
}

struct Place {
  int64_t row, column;
};
Place maximum(const Case& c, const TestMap& input, int64_t n, int64_t channel, int64_t y, int64_t x) {
  Place best = {-1, -1};
  each_covered(c, y, x, [&](int64_t row, int64_t column) {
    if (best.row < 0 || input.at(n, channel, row, column) > input.at(n, channel, best.row, best.column)) {
      best = {row, column};
    }
  });
  return best;
}

int64_t divisor(const Case& c, bool count_padding, int64_t y, int64_t x) {
  const Window& w = c.window;
  int64_t count = 0;
  for (int64_t i = 0; i < w.kernel_height; ++i) {
    for (int64_t j = 0; j < w.kernel_width; ++j) {
      const int64_t row = y * w.stride_height - w.top + i, column = x * w.stride_width - w.left + j;
      const int64_t pad = count_padding ? 1 : 0;
      count += row >= -pad * w.top && row < c.in.height + pad * c.bottom && column >= -pad * w.left &&
               column < c.in.width + pad * c.right;
    }
  }
  return count;
}

// Returns a function of (n, channel, row, column): the sum of what scatter(n, channel, y, x, add) adds to this pixel
// for all output pixels.
template <typename Scatter>
auto scattered(const Case& c, const TestMap& gradient, Scatter scatter) {
  const MapShape s = c.in;
  const auto index = [s](int64_t n, int64_t channel, int64_t row, int64_t column) {
    return static_cast<size_t>(((n * s.channels + channel) * s.height + row) * s.width + column);
  };
  std::vector<double> sums(static_cast<size_t>(s.batch * s.channels * s.pixels()));
  gradient.each([&](int64_t n, int64_t channel, int64_t y, int64_t x) {
    scatter(n, channel, y, x,
            [&](int64_t row, int64_t column, double value) { sums[index(n, channel, row, column)] += value; });
  });
  return [sums = std::move(sums), index](auto... at) { return sums[index(at...)]; };
}

// Returns numbers with equal ones among them, since it matters which one is the maximum.
TestMap with_ties(const MapShape& shape, DataType dtype) {
  const TestMap numbers = TestMap::random(shape, dtype, 1);
  return TestMap::of(shape, dtype, [&](auto... at) { return std::round(2 * numbers.at(at...)) / 2 - 3; });
}

TYPED_TEST(PoolTest, MaximaForwardAndBackward) {
  for (DataType dtype : kDataTypes) {
    for (const Case& c : this->cases()) {
      const TestMap input = with_ties(c.in, dtype), gradient = TestMap::random(c.out, dtype, 2);
      TestMap output(c.out, dtype), inference(c.out, dtype), target(c.in, dtype);
      TestBytes argmax(c.out.elements());
      MaxPoolForward a{.input_shape = c.in,
                       .output_shape = c.out,
                       .dtype = dtype,
                       .window = c.window,
                       .input = input.data(),
                       .output = output.data(),
                       .argmax = argmax.data()};
      TypeParam::max_pool_forward(a);
      output.expect(
          [&](int64_t n, int64_t channel, int64_t y, int64_t x) {
            const Place best = maximum(c, input, n, channel, y, x);
            return best.row < 0 ? -std::numeric_limits<double>::infinity()
                                : input.at(n, channel, best.row, best.column);
          },
          0);
      EXPECT_TRUE(argmax.fences_hold());
      a.argmax = nullptr;
      a.output = inference.data();
      TypeParam::max_pool_forward(a);
      EXPECT_EQ(inference, output);

      const auto expected = scattered(c, gradient, [&](int64_t n, int64_t channel, int64_t y, int64_t x, auto add) {
        const Place best = maximum(c, input, n, channel, y, x);
        if (best.row >= 0) add(best.row, best.column, gradient.at(n, channel, y, x));
      });
      MaxPoolBackward b{.input_shape = c.in,
                        .output_shape = c.out,
                        .dtype = dtype,
                        .window = c.window,
                        .gradient = gradient.data(),
                        .argmax = argmax.data(),
                        .input_gradient = target.data()};
      TypeParam::max_pool_backward(b);
      target.expect(expected, 1e-5);
      TestMap added = input;
      b.input_gradient = added.data();
      b.accumulate = true;
      TypeParam::max_pool_backward(b);
      added.expect([&](auto... at) { return input.at(at...) + expected(at...); }, 1e-5);
    }
  }
}

TYPED_TEST(PoolTest, AveragesForwardAndBackward) {
  for (DataType dtype : kDataTypes) {
    for (const Case& c : this->cases()) {
      for (const bool count_padding : {false, true}) {
        const TestMap input = TestMap::random(c.in, dtype, 1), gradient = TestMap::random(c.out, dtype, 2);
        TestMap output(c.out, dtype), target(c.in, dtype), added = input;
        AveragePool a{.input_shape = c.in,
                      .output_shape = c.out,
                      .dtype = dtype,
                      .window = c.window,
                      .bottom = c.bottom,
                      .right = c.right,
                      .count_padding = count_padding,
                      .input = input.data(),
                      .output = output.data()};
        TypeParam::average_pool_forward(a);
        output.expect([&](int64_t n, int64_t channel, int64_t y, int64_t x) {
          double sum = 0;
          each_covered(c, y, x, [&](int64_t row, int64_t column) { sum += input.at(n, channel, row, column); });
          return sum / static_cast<double>(divisor(c, count_padding, y, x));
        });

        const auto expected = scattered(c, gradient, [&](int64_t n, int64_t channel, int64_t y, int64_t x, auto add) {
          const double share = gradient.at(n, channel, y, x) / static_cast<double>(divisor(c, count_padding, y, x));
          each_covered(c, y, x, [&](int64_t row, int64_t column) { add(row, column, share); });
        });
        a.input = gradient.data();
        a.output = target.data();
        expect_fresh_and_added(TypeParam::average_pool_backward, a, target, added, expected, 2e-6);
      }
    }
  }
}

TYPED_TEST(PoolTest, MaximumOfNanIsNan) {
  const MapShape in = this->shape(1, 1, 1, 3), out = this->shape(1, 1, 1, 1);
  for (int64_t nan = 0; nan < 3; ++nan) {
    const TestMap input = TestMap::of(in, DataType::kFloat, [&](int64_t, int64_t, int64_t, int64_t x) {
      return x == nan ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    });
    TestMap output(out, DataType::kFloat);
    TypeParam::max_pool_forward({.input_shape = in,
                                 .output_shape = out,
                                 .window = {.kernel_width = 3},
                                 .input = input.data(),
                                 .output = output.data()});
    EXPECT_TRUE(std::isnan(output.at(0, 0))) << nan;
  }
}

// PyTorch takes the last NaN. In a window of nothing but -infinity, that is the maximum.
TYPED_TEST(PoolTest, GradientGoesToTheLastNan) {
  const MapShape in = this->shape(1, 2, 1, 3), out = this->shape(1, 2, 1, 1);
  const TestMap input = TestMap::of(in, DataType::kFloat, [&](int64_t, int64_t c, int64_t, int64_t x) {
    if (c == 1) return -std::numeric_limits<double>::infinity();
    return x < 2 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
  });
  TestMap output(out, DataType::kFloat), gradient = TestMap::of(out, DataType::kFloat, [](auto...) { return 5.0; });
  TestMap target(in, DataType::kFloat);
  TestBytes argmax(out.elements());
  const Window window{.kernel_width = 3};
  TypeParam::max_pool_forward({.input_shape = in,
                               .output_shape = out,
                               .window = window,
                               .input = input.data(),
                               .output = output.data(),
                               .argmax = argmax.data()});
  TypeParam::max_pool_backward({.input_shape = in,
                                .output_shape = out,
                                .window = window,
                                .gradient = gradient.data(),
                                .argmax = argmax.data(),
                                .input_gradient = target.data()});
  EXPECT_EQ(output.at(0, 1), -std::numeric_limits<double>::infinity());
  target.expect([](int64_t, int64_t c, int64_t, int64_t x) { return x == (c == 0 ? 1 : 0) ? 5.0 : 0.0; });
}

TYPED_TEST(PoolTest, MeansOfWholeImages) {
  std::vector<MapShape> shapes;
  for (int64_t channels : {1, 3, 16, 17, 40}) shapes.push_back(this->shape(3, channels, 7, 7));
  shapes.push_back(this->shape(1, 17, 61, 67));
  shapes.push_back(this->shape(3, 17, 1, 1));
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : shapes) {
      const TestMap input = TestMap::random(shape, dtype, 1);
      const auto count = static_cast<size_t>(shape.batch * shape.channels);
      const auto at = [&](int64_t n, int64_t c) { return static_cast<size_t>(n * shape.channels + c); };
      std::vector<float> means(count + 1, 99);
      TypeParam::global_average_forward(
          {.shape = shape, .dtype = dtype, .input = input.data(), .output = means.data()});
      std::vector<double> sums(count);
      input.each([&](int64_t n, int64_t c, int64_t y, int64_t x) { sums[at(n, c)] += input.at(n, c, y, x); });
      for (size_t i = 0; i < count; ++i) EXPECT_NEAR(means[i], sums[i] / static_cast<double>(shape.pixels()), 1e-6);
      EXPECT_EQ(means[count], 99) << "written beside the vector";

      const std::vector<float> gradient = random_floats(shape.batch * shape.channels, 2);
      const auto share = [&](int64_t n, int64_t c) { return gradient[at(n, c)] / static_cast<double>(shape.pixels()); };
      TestMap target(shape, dtype), added = input;
      TypeParam::global_average_backward(
          {.shape = shape, .dtype = dtype, .gradient = gradient.data(), .input_gradient = target.data()});
      target.expect([&](int64_t n, int64_t c, auto...) { return share(n, c); });
      TypeParam::global_average_backward({.shape = shape,
                                          .dtype = dtype,
                                          .gradient = gradient.data(),
                                          .input_gradient = added.data(),
                                          .accumulate = true});
      added.expect([&](int64_t n, int64_t c, int64_t y, int64_t x) { return input.at(n, c, y, x) + share(n, c); });
    }
  }
}

TYPED_TEST(PoolTest, IsTheSameForAnyThreads) {
  const Case c = this->pooled(this->shape(1, 17, 45, 43), {3, 3, 2, 2, 1, 1}, 1, 1);
  const TestMap input = TestMap::random(c.in, DataType::kFloat, 1);
  expect_same_for_any_threads([&] {
    TestMap output(c.out, DataType::kFloat);
    TypeParam::average_pool_forward({.input_shape = c.in,
                                     .output_shape = c.out,
                                     .window = c.window,
                                     .input = input.data(),
                                     .output = output.data()});
    return output;
  });
  expect_same_for_any_threads([&] {
    std::vector<float> means(17);
    TypeParam::global_average_forward({.shape = c.in, .input = input.data(), .output = means.data()});
    return means;
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::pool_test
