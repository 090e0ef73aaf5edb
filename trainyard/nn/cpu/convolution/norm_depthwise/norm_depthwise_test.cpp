// Batch norm with its activation and the depthwise convolution behind it, against the definition in double: forward,
// all gradients, threads, and what is written past the caches.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::norm_depthwise_test {
namespace {

constexpr double kEpsilon = 1e-3;
constexpr int64_t kTaps = 9;

struct Case {
  MapShape shape;  // of the input
  int64_t stride = 1, top = 1, left = 1;
  int64_t bottom = 1, right = 1;
  UnitActivation activation = UnitActivation::kRelu6;

  MapShape output() const {
    MapShape out = shape;
    out.height = (shape.height + top + bottom - 3) / stride + 1;
    out.width = (shape.width + left + right - 3) / stride + 1;
    return out;
  }
};

double activation(UnitActivation kind, double x) {
  switch (kind) {
    case UnitActivation::kRelu:
      return std::max(x, 0.0);
    case UnitActivation::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case UnitActivation::kSilu:
      return x / (1 + std::exp(-x));
    case UnitActivation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

double derivative(UnitActivation kind, double x) {
  const double step = 1e-6;
  return (activation(kind, x + step) - activation(kind, x - step)) / (2 * step);
}

// Numbers of a map by sample, channel, row and column, in double.
class Doubles {
 public:
  explicit Doubles(const MapShape& shape)
      : shape_(shape), values_(static_cast<size_t>(shape.batch * shape.channels * shape.pixels())) {}
  double& at(int64_t n, int64_t c, int64_t y, int64_t x) {
    return values_[static_cast<size_t>(((n * shape_.channels + c) * shape_.height + y) * shape_.width + x)];
  }

 private:
  MapShape shape_;
  std::vector<double> values_;
};

template <typename Kernels>
class NormDepthwiseTest : public KernelTest<Kernels> {
 protected:
  struct Results {
    TestMap output, again, input_gradient;
    std::vector<float> mean, variance, scale, shift, weight_gradient, bias_gradient, window_gradient;
    bool operator==(const Results&) const = default;
  };

  struct Inputs {
    TestMap input, gradient;
    std::vector<float> weight, bias, windows;
  };
  static Inputs inputs_of(const Case& c) {
    return {TestMap::random(c.shape, DataType::kFloat, 1), TestMap::random(c.output(), DataType::kFloat, 2),
            random_floats(c.shape.channels, 3), random_floats(c.shape.channels, 4),
            random_floats(c.shape.channels * kTaps, 5)};
  }

  static Results run(const Case& c, const Inputs& in) {
    const std::vector<float> unwritten(c.shape.padded_channels(), std::numeric_limits<float>::quiet_NaN());
    Results r = {.output = TestMap(c.output(), DataType::kFloat),
                 .again = TestMap(c.output(), DataType::kFloat),
                 .input_gradient = TestMap(c.shape, DataType::kFloat),
                 .mean = unwritten,
                 .variance = unwritten,
                 .scale = unwritten,
                 .shift = unwritten,
                 .weight_gradient = unwritten,
                 .bias_gradient = unwritten,
                 .window_gradient = std::vector<float>(in.windows.size(), std::numeric_limits<float>::quiet_NaN())};
    const NormDepthwise shape = {.input_shape = c.shape,
                                 .output_shape = c.output(),
                                 .stride = c.stride,
                                 .top = c.top,
                                 .left = c.left,
                                 .weights = in.windows.data(),
                                 .threads = omp_get_max_threads()};
    NormDepthwiseForward forward{shape};
    TestBytes scratch(std::max(forward.scratch_bytes(), NormDepthwiseBackward{shape}.scratch_bytes()));
    forward.scratch = scratch.data();
    forward.norm = {.shape = c.shape,
                    .activation = c.activation,
                    .epsilon = kEpsilon,
                    .input = in.input.data(),
                    .weight = in.weight.data(),
                    .bias = in.bias.data(),
                    .mean = r.mean.data(),
                    .variance = r.variance.data(),
                    .scale = r.scale.data(),
                    .shift = r.shift.data()};
    forward.output = r.output.data();
    Kernels::norm_depthwise_forward(forward);
    forward.collects = false;
    forward.output = r.again.data();
    Kernels::norm_depthwise_forward(forward);

    NormDepthwiseBackward backward{shape};
    backward.scratch = scratch.data();
    backward.norm = {.shape = c.shape,
                     .activation = c.activation,
                     .epsilon = kEpsilon,
                     .input = in.input.data(),
                     .mean = r.mean.data(),
                     .variance = r.variance.data(),
                     .scale = r.scale.data(),
                     .shift = r.shift.data(),
                     .input_gradient = r.input_gradient.data(),
                     .weight_gradient = r.weight_gradient.data(),
                     .bias_gradient = r.bias_gradient.data()};
    backward.output_gradient = in.gradient.data();
    backward.weights_gradient = r.window_gradient.data();
    Kernels::norm_depthwise_backward(backward);
    EXPECT_TRUE(scratch.fences_hold()) << "written beside the scratch memory";
    return r;
  }

  static void expect_floats(const char* what, const std::vector<float>& have, const std::vector<double>& want,
                            double slack) {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(have[i], want[i], 3e-6 * std::abs(want[i]) + slack) << what << " " << i;
    }
  }

  static void check(const Case& c) {
    const MapShape &s = c.shape, out = c.output();
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.channels << " x " << s.height << " x " << s.width
                                    << ", stride " << c.stride << ", padding " << c.top << " " << c.left
                                    << ", activation " << int(c.activation));
    const Inputs in = inputs_of(c);
    const Results r = run(c, in);
    const auto count = static_cast<double>(s.batch * s.pixels());
    std::vector<double> mean(s.channels), variance(s.channels), scale(s.channels), shift(s.channels);
    in.input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) { mean[k] += in.input.at(n, k, y, x) / count; });
    in.input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) {
      variance[k] += std::pow(in.input.at(n, k, y, x) - mean[k], 2) / count;
    });
    for (int64_t k = 0; k < s.channels; ++k) {
      scale[k] = in.weight[k] / std::sqrt(variance[k] + kEpsilon);
      shift[k] = in.bias[k] - mean[k] * scale[k];
    }
    const auto u = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      return in.input.at(n, k, y, x) * scale[k] + shift[k];
    };
    Doubles outputs(out), sent(s);
    std::vector<double> windows(in.windows.size()), sum(s.channels), products(s.channels);
    in.gradient.each([&](int64_t n, int64_t k, int64_t oy, int64_t ox) {
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const int64_t y = oy * c.stride + tap / 3 - c.top, x = ox * c.stride + tap % 3 - c.left;
        if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
        const double value = activation(c.activation, u(n, k, y, x)), gradient = in.gradient.at(n, k, oy, ox);
        outputs.at(n, k, oy, ox) += value * in.windows[k * kTaps + tap];
        sent.at(n, k, y, x) += gradient * in.windows[k * kTaps + tap];
        windows[k * kTaps + tap] += gradient * value;
      }
    });
    const double slack = 4e-5;
    r.output.expect([&](auto... at) { return outputs.at(at...); }, slack);
    r.again.expect([&](auto... at) { return outputs.at(at...); }, slack);

    const auto d = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      return sent.at(n, k, y, x) * derivative(c.activation, u(n, k, y, x));
    };
    const auto normal = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      return (in.input.at(n, k, y, x) - mean[k]) / std::sqrt(variance[k] + kEpsilon);
    };
    in.input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) {
      sum[k] += d(n, k, y, x);
      products[k] += d(n, k, y, x) * normal(n, k, y, x);
    });
    const double sums_slack = std::sqrt(count) * slack;
    expect_floats("mean", r.mean, mean, 1e-6);
    expect_floats("bias'", r.bias_gradient, sum, sums_slack);
    expect_floats("weight'", r.weight_gradient, products, sums_slack);
    expect_floats("window'", r.window_gradient, windows, sums_slack);
    double largest = 1;
    for (const double one : scale) largest = std::max(largest, std::abs(one));
    r.input_gradient.expect(
        [&](int64_t n, int64_t k, int64_t y, int64_t x) {
          return scale[k] * (d(n, k, y, x) - sum[k] / count - normal(n, k, y, x) * products[k] / count);
        },
        largest * slack);
  }
};

TYPED_TEST_SUITE(NormDepthwiseTest, Compilations, CompilationName);

TYPED_TEST(NormDepthwiseTest, FollowsTheDefinition) {
  for (const int64_t stride : {1, 2}) {
    for (const int64_t channels : {3, 16, 17, 40}) {
      TestFixture::check({.shape = this->shape(3, channels, 6, 9), .stride = stride});
    }
  }
}

// Widths around those of a tile, down to maps that are narrower than the window; images of several strips, and strips
// of several images.
TYPED_TEST(NormDepthwiseTest, KnowsMapsOfAnySize) {
  for (const int64_t stride : {1, 2}) {
    for (int64_t width = 1; width <= 18; ++width) {
      TestFixture::check({.shape = this->shape(2, 5, width % 4 + 1, width), .stride = stride});
    }
    TestFixture::check({.shape = this->shape(2, 17, 37, 19), .stride = stride});
    TestFixture::check({.shape = this->shape(37, 17, 4, 4), .stride = stride});
    TestFixture::check({.shape = this->shape(1, 3, 1, 1), .stride = stride});
  }
}

TYPED_TEST(NormDepthwiseTest, KnowsAnyPadding) {
  for (const int64_t stride : {1, 2}) {
    for (const int64_t top : {0, 1, 2}) {
      for (const int64_t left : {0, 1, 2}) {
        TestFixture::check({.shape = this->shape(2, 5, 7, 8), .stride = stride, .top = top, .left = left});
        TestFixture::check(
            {.shape = this->shape(2, 5, 8, 7), .stride = stride, .top = top, .left = left, .bottom = 0, .right = 2});
      }
    }
  }
}

TYPED_TEST(NormDepthwiseTest, KnowsActivations) {
  for (const UnitActivation kind :
       {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kSilu, UnitActivation::kSigmoid}) {
    for (const int64_t stride : {1, 2}) {
      TestFixture::check({.shape = this->shape(3, 17, 6, 11), .stride = stride, .activation = kind});
    }
  }
}

TYPED_TEST(NormDepthwiseTest, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const int64_t stride : {1, 2}) {
    const Case c = {.shape = this->shape(5, 40, 33, 35), .stride = stride};
    const auto inputs = TestFixture::inputs_of(c);
    expect_same_for_any_threads([&] { return TestFixture::run(c, inputs); });
  }
}

// Maps of more than half of a cache of 32 MiB: their gradients are written past it, and waves are single blocks.
TYPED_TEST(NormDepthwiseTest, FollowsTheDefinitionPastTheCaches) {
  const auto pixels = static_cast<double>((int64_t{17} << 20) / (TypeParam::kBlock * int64_t{sizeof(float)}));
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(pixels)));
  // SiLU, since of so many numbers some lie so near to a limit of ReLU6 that rounding puts them on the other side.
  const UnitActivation smooth = UnitActivation::kSilu;
  TestFixture::check({.shape = this->shape(1, 1, side, side), .stride = 2, .activation = smooth});
  TestFixture::check({.shape = this->shape(1, TypeParam::kBlock + 1, side, side / 2), .activation = smooth});
}

}  // namespace
}  // namespace trainyard::nn::cpu::norm_depthwise_test
