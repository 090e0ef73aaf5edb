// Batch normalization's kernels against their definition in double precision.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::norm_test {
namespace {

constexpr UnitActivation kAll[] = {UnitActivation::kNone,    UnitActivation::kRelu,      UnitActivation::kRelu6,
                                   UnitActivation::kSilu,    UnitActivation::kHardSwish, UnitActivation::kHardSigmoid,
                                   UnitActivation::kSigmoid, UnitActivation::kGelu,      UnitActivation::kTanh};

double activation(UnitActivation kind, double x) {
  const double logistic = 1 / (1 + std::exp(-x)), hard = std::clamp(x + 3, 0.0, 6.0) / 6;
  switch (kind) {
    case UnitActivation::kNone:
      return x;
    case UnitActivation::kRelu:
      return std::max(x, 0.0);
    case UnitActivation::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case UnitActivation::kSilu:
      return x * logistic;
    case UnitActivation::kHardSwish:
      return x * hard;
    case UnitActivation::kHardSigmoid:
      return hard;
    case UnitActivation::kSigmoid:
      return logistic;
    case UnitActivation::kGelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case UnitActivation::kTanh:
      return std::tanh(x);
  }
  return 0;
}

// Returns the derivative by differences, so that no formula of the kernels stands here again.
double derivative(UnitActivation kind, double x) {
  const double step = 1e-6;
  return (activation(kind, x + step) - activation(kind, x - step)) / (2 * step);
}

TestMap random(const MapShape& shape, DataType dtype, uint64_t seed, double mean, double range) {
  core::RandomStream stream(seed, "norm_test", {});
  return TestMap::of(shape, dtype, [&](auto...) { return mean + range * (stream.uniform() * 2 - 1); });
}

struct Case {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kRelu;
  bool residual = false;
  int gradients = 1;
  bool in_place = false;  // outputs over inputs wherever that is allowed
  double mean = 0.5, range = 3;
  bool pass_by_pass = false;  // by the kernels of one pass each
};

// Values of the definition, one a channel.
using Channels = std::vector<double>;

// Expects `have` [padded] to be `want` [channels] to `relative` and `absolute`, and zero in pad lanes.
void expect_channels(const char* what, const std::vector<float>& have, const Channels& want, double relative,
                     double absolute) {
  for (size_t c = 0; c < have.size(); ++c) {
    if (c >= want.size()) {
      EXPECT_EQ(have[c], 0) << what << " of pad lane " << c;
    } else {
      EXPECT_NEAR(have[c], want[c], relative * std::abs(want[c]) + absolute) << what << " of channel " << c;
    }
  }
}

template <typename Kernels>
class NormTest : public KernelTest<Kernels> {
 protected:
  // What one call of forward and one of backward write.
  struct Results {
    TestMap output, input_gradient, masked;
    std::vector<float> mean, variance, scale, shift, weight_gradient, bias_gradient;
    TestBytes mask;
    bool operator==(const Results&) const = default;
  };

  static Results run(const Case& c, TestMap input, TestMap residual, std::vector<TestMap> gradients,
                     const std::vector<float>& weight, const std::vector<float>& bias) {
    const MapShape& s = c.shape;
    // Values that no kernel writes stay NaN.
    const std::vector<float> unwritten(s.padded_channels(), std::numeric_limits<float>::quiet_NaN());
    Results r = {.output = TestMap(s, c.dtype),
                 .input_gradient = TestMap(s, c.dtype),
                 .masked = TestMap(s, c.dtype),
                 .mean = unwritten,
                 .variance = unwritten,
                 .scale = unwritten,
                 .shift = unwritten,
                 .weight_gradient = unwritten,
                 .bias_gradient = unwritten,
                 .mask = TestBytes(s.elements() / 8)};
    const bool has_mask = c.residual && c.activation == UnitActivation::kRelu;
    TestMap source = input;
    if (c.in_place) r.output = c.residual ? residual : source;
    std::vector<double> between(2 * s.channels, std::numeric_limits<double>::quiet_NaN());
    const NormForward forward = {.shape = s,
                                 .dtype = c.dtype,
                                 .activation = c.activation,
                                 .epsilon = kEpsilon,
                                 .input = c.in_place && !c.residual ? r.output.data() : source.data(),
                                 .residual = !c.residual   ? nullptr
                                             : !c.in_place ? residual.data()
                                                           : r.output.data(),
                                 .weight = weight.empty() ? nullptr : weight.data(),
                                 .bias = bias.data(),
                                 .output = r.output.data(),
                                 .mask = has_mask ? r.mask.data() : nullptr,
                                 .mean = r.mean.data(),
                                 .variance = r.variance.data(),
                                 .scale = r.scale.data(),
                                 .shift = r.shift.data(),
                                 .moments = between.data()};
    if (c.pass_by_pass) {
      Kernels::norm_moments(forward);
      Kernels::norm_with_moments(forward);
    } else {
      Kernels::norm_forward(forward);
    }
    NormBackward backward = {.shape = s,
                             .dtype = c.dtype,
                             .activation = c.activation,
                             .epsilon = kEpsilon,
                             .gradient_count = c.gradients,
                             .input = input.data(),
                             .mask = has_mask ? r.mask.data() : nullptr,
                             .mean = r.mean.data(),
                             .variance = r.variance.data(),
                             .scale = r.scale.data(),
                             .shift = r.shift.data(),
                             .masked = c.residual ? r.masked.data() : nullptr,
                             .input_gradient = r.input_gradient.data(),
                             .weight_gradient = r.weight_gradient.data(),
                             .bias_gradient = r.bias_gradient.data(),
                             .sums = between.data(),
                             .count = static_cast<double>(s.batch * s.pixels())};
    for (int g = 0; g < c.gradients; ++g) backward.gradients[g] = gradients[g].data();
    if (c.in_place) {
      backward.input_gradient = c.residual ? input.data() : gradients[0].data();
      if (c.residual) backward.masked = gradients.back().data();
    }
    if (c.pass_by_pass) {
      Kernels::norm_gradient_sums(backward);
      Kernels::norm_backward_with_sums(backward);
    } else {
      Kernels::norm_backward(backward);
    }
    if (c.in_place) {
      r.input_gradient = c.residual ? input : gradients[0];
      if (c.residual) r.masked = gradients.back();
    }
    return r;
  }

  static void check(const Case& c, bool with_weight = true) {
    const MapShape& s = c.shape;
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.channels << " x " << s.height << " x " << s.width
                                    << ", dtype " << int(c.dtype) << ", activation " << int(c.activation)
                                    << ", residual " << c.residual << ", gradients " << c.gradients);
    const auto count = static_cast<double>(s.batch * s.pixels());
    const TestMap input = random(s, c.dtype, 1, c.mean, c.range), residual = random(s, c.dtype, 2, 0, 2);
    std::vector<TestMap> gradients;
    for (int g = 0; g < c.gradients; ++g) gradients.push_back(random(s, c.dtype, 10 + g, 0.1, 2));
    const std::vector<float> weight = with_weight ? random_floats(s.channels, 3) : std::vector<float>();
    const std::vector<float> bias = random_floats(s.channels, 4);
    const Results r = run(c, input, residual, gradients, weight, bias);
    Case pass_by_pass = c;
    pass_by_pass.pass_by_pass = true;
    EXPECT_TRUE(run(pass_by_pass, input, residual, gradients, weight, bias) == r) << "other bits pass by pass";

    Channels mean(s.channels), variance(s.channels), scale(s.channels), shift(s.channels), sum(s.channels),
        products(s.channels);
    input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) { mean[k] += input.at(n, k, y, x) / count; });
    input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) {
      variance[k] += std::pow(input.at(n, k, y, x) - mean[k], 2) / count;
    });
    for (int64_t k = 0; k < s.channels; ++k) {
      scale[k] = (with_weight ? weight[k] : 1) / std::sqrt(variance[k] + kEpsilon);
      shift[k] = bias[k] - mean[k] * scale[k];
    }
    const auto u = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      return input.at(n, k, y, x) * scale[k] + shift[k] + (c.residual ? residual.at(n, k, y, x) : 0);
    };
    // Scale and shift are rounded to fp32. The error grows with the mean, counted in deviations.
    const double slack = 2e-6 * (4 + std::abs(c.mean) / c.range);
    r.output.expect([&](auto... at) { return activation(c.activation, u(at...)); }, slack);
    expect_channels("mean", r.mean, mean, 1e-7, 1e-6 * c.range);
    expect_channels("variance", r.variance, variance, 5e-6, 0);
    expect_channels("scale", r.scale, scale, 3e-6, 0);
    expect_channels("shift", r.shift, shift, 3e-6, slack);
    if (c.residual && c.activation == UnitActivation::kRelu) {
      int wrong = 0;
      input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) {
        const int64_t bit = input.index(n, k, y, x);
        wrong += ((r.mask.data()[bit / 8] >> (bit % 8)) & 1) != (u(n, k, y, x) > 0);
      });
      EXPECT_EQ(wrong, 0) << "bits of the mask";
      EXPECT_TRUE(r.mask.fences_hold());
    }

    const auto d = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      double gradient = 0;
      for (const TestMap& one : gradients) gradient += one.at(n, k, y, x);
      return gradient * derivative(c.activation, u(n, k, y, x));
    };
    const auto normal = [&](int64_t n, int64_t k, int64_t y, int64_t x) {
      return (input.at(n, k, y, x) - mean[k]) / std::sqrt(variance[k] + kEpsilon);
    };
    input.each([&](int64_t n, int64_t k, int64_t y, int64_t x) {
      sum[k] += d(n, k, y, x);
      products[k] += d(n, k, y, x) * normal(n, k, y, x);
    });
    if (c.residual) r.masked.expect(d);
    const double sums_slack = std::sqrt(count) * c.gradients * slack;
    expect_channels("bias'", r.bias_gradient, sum, 2e-6, sums_slack);
    expect_channels("weight'", r.weight_gradient, products, 2e-6, sums_slack);
    double largest = 1;
    for (const double one : scale) largest = std::max(largest, std::abs(one));
    // A 16-bit d is rounded where it is written down between the passes.
    const double rounding = c.dtype == DataType::kBfloat16 && c.residual ? c.gradients / 64.0 : 0;
    r.input_gradient.expect(
        [&](int64_t n, int64_t k, int64_t y, int64_t x) {
          return scale[k] * (d(n, k, y, x) - sum[k] / count - normal(n, k, y, x) * products[k] / count);
        },
        largest * (2 * slack + rounding));
  }

  static constexpr double kEpsilon = 1e-3;
};

TYPED_TEST_SUITE(NormTest, Compilations, CompilationName);

TYPED_TEST(NormTest, FollowsTheDefinition) {
  for (int64_t channels : {1, 3, 16, 17, 40}) {
    for (int64_t batch : {1, 3}) {
      for (DataType dtype : kDataTypes) {
        TestFixture::check({.shape = this->shape(batch, channels, 5, 7), .dtype = dtype});
        TestFixture::check({.shape = this->shape(batch, channels, 3, 3), .dtype = dtype, .residual = true});
        TestFixture::check({.shape = this->shape(batch, channels, 2, 3),
                            .dtype = dtype,
                            .activation = UnitActivation::kNone,
                            .residual = true,
                            .gradients = 2});
      }
    }
  }
  TestFixture::check({.shape = this->shape(2, 5, 3, 3)}, false);
}

TYPED_TEST(NormTest, KnowsEveryActivation) {
  for (UnitActivation kind : kAll) {
    for (DataType dtype : kDataTypes)
      TestFixture::check({.shape = this->shape(3, 17, 6, 5), .dtype = dtype, .activation = kind});
  }
}

TYPED_TEST(NormTest, AddsUpGradientsAndWritesOverInputs) {
  for (int gradients : {1, 2, 3, 4}) {
    for (bool residual : {false, true}) {
      for (DataType dtype : kDataTypes) {
        TestFixture::check({.shape = this->shape(2, 20, 3, 5),
                            .dtype = dtype,
                            .residual = residual,
                            .gradients = gradients,
                            .in_place = true});
      }
    }
  }
}

// Images of more pixels than are summed up in fp32, images that share a sum, and single pixels.
TYPED_TEST(NormTest, CutsImagesOfAnySize) {
  for (DataType dtype : kDataTypes) {
    TestFixture::check({.shape = this->shape(2, 9, 45, 67), .dtype = dtype, .activation = UnitActivation::kRelu6});
    TestFixture::check({.shape = this->shape(70, 9, 4, 4), .dtype = dtype, .gradients = 2});
    TestFixture::check({.shape = this->shape(130, 33, 1, 1), .dtype = dtype});
    TestFixture::check({.shape = this->shape(1, 17, 1, 1), .dtype = dtype, .activation = UnitActivation::kNone});
  }
}

TYPED_TEST(NormTest, KeepsASmallVarianceBesideALargeMean) {
  TestFixture::check(
      {.shape = this->shape(4, 17, 40, 30), .activation = UnitActivation::kSilu, .mean = 1000, .range = 0.1});
}

TYPED_TEST(NormTest, GivesTheSameBitsForAnyNumberOfThreads) {
  const MapShape s = this->shape(5, 40, 33, 35);
  for (const bool pass_by_pass : {false, true}) {
    expect_same_for_any_threads([&] {
      return TestFixture::run({.shape = s, .residual = true, .pass_by_pass = pass_by_pass},
                              TestMap::random(s, DataType::kFloat, 1), TestMap::random(s, DataType::kFloat, 2),
                              {TestMap::random(s, DataType::kFloat, 3)}, {}, random_floats(s.channels, 4));
    });
  }
}

// Maps that no cache holds are written past the caches where they are aligned. Of the two here one is aligned, the
// other is not.
TYPED_TEST(NormTest, GivesTheSameBitsPastTheCaches) {
  for (DataType dtype : kDataTypes) {
    const int64_t lane_bytes = TypeParam::kBlock * size_of(dtype), bytes = (int64_t{64} << 20) + 64 * lane_bytes;
    const MapShape s = this->shape(1, TypeParam::kBlock, 1, bytes / lane_bytes);
    const auto numbers = [&](uint32_t seed) {
      std::vector<uint16_t> halves(static_cast<size_t>(bytes) / 2);
      for (uint16_t& half : halves) {
        seed = seed * 1664525 + 1013904223;
        half = static_cast<uint16_t>((seed >> 31) * 0x8000 + 0x3E00 + (seed >> 23) % 0x200);  // +-0.125 to 2
      }
      return halves;
    };
    const std::vector<uint16_t> input = numbers(1), gradient = numbers(2);
    const std::vector<float> bias(s.channels, 0.25F);
    std::vector<std::vector<uint8_t>> written(2, std::vector<uint8_t>(static_cast<size_t>(bytes) + 128));
    std::vector<uint8_t*> places;
    for (int64_t i : {0, 1}) {
      const auto address = reinterpret_cast<uintptr_t>(written[i].data());
      places.push_back(written[i].data() + (64 - address % 64) + i * size_of(dtype));
    }
    std::vector<float> v(6 * s.channels);
    float *const mean = &v[0], *const variance = mean + s.channels, *const scale = variance + s.channels,
                 *const shift = scale + s.channels;
    for (uint8_t* place : places) {
      TypeParam::norm_forward({.shape = s,
                               .dtype = dtype,
                               .activation = UnitActivation::kRelu,
                               .input = input.data(),
                               .bias = bias.data(),
                               .output = place,
                               .mean = mean,
                               .variance = variance,
                               .scale = scale,
                               .shift = shift});
    }
    EXPECT_EQ(std::memcmp(places[0], places[1], static_cast<size_t>(bytes)), 0) << "forward, dtype " << int(dtype);
    for (uint8_t* place : places) {
      std::memset(place, 0, static_cast<size_t>(bytes));
      TypeParam::norm_backward({.shape = s,
                                .dtype = dtype,
                                .activation = UnitActivation::kRelu,
                                .gradients = {gradient.data()},
                                .input = input.data(),
                                .mean = mean,
                                .variance = variance,
                                .scale = scale,
                                .shift = shift,
                                .input_gradient = place,
                                .weight_gradient = shift + s.channels,
                                .bias_gradient = shift + 2 * s.channels});
    }
    EXPECT_EQ(std::memcmp(places[0], places[1], static_cast<size_t>(bytes)), 0) << "backward, dtype " << int(dtype);
  }
}

TYPED_TEST(NormTest, ScalesAndShiftsByGivenNumbers) {
  const MapShape s = this->shape(3, 19, 5, 3);
  std::vector<float> scale = random_floats(s.padded_channels(), 3), shift = random_floats(s.padded_channels(), 4);
  for (int64_t c = s.channels; c < s.padded_channels(); ++c) scale[c] = shift[c] = 0;
  for (UnitActivation kind : kAll) {
    for (DataType dtype : kDataTypes) {
      for (bool with_residual : {false, true}) {
        const TestMap input = random(s, dtype, 1, 0, 5), residual = TestMap::random(s, dtype, 2);
        TestMap output(s, dtype);
        TypeParam::scale_shift({.shape = s,
                                .dtype = dtype,
                                .activation = kind,
                                .input = input.data(),
                                .residual = with_residual ? residual.data() : nullptr,
                                .scale = scale.data(),
                                .shift = shift.data(),
                                .output = output.data()});
        SCOPED_TRACE(testing::Message() << "activation " << int(kind) << ", dtype " << int(dtype));
        output.expect(
            [&](int64_t n, int64_t c, int64_t y, int64_t x) {
              const double u = input.at(n, c, y, x) * scale[c] + shift[c];
              return activation(kind, u + (with_residual ? residual.at(n, c, y, x) : 0));
            },
            2e-6);
      }
    }
  }
}

// NaN must reach the loss, where training stops.
TYPED_TEST(NormTest, LetsNanThrough) {
  const MapShape s = this->shape(1, 1, 1, 3);
  const std::vector<float> ones(s.padded_channels(), 1.0F), bias(1, 0.0F);
  for (DataType dtype : kDataTypes) {
    TestMap input = TestMap::random(s, dtype, 1);
    input.set(0, 0, 0, 1, std::numeric_limits<double>::quiet_NaN());
    for (UnitActivation kind : kAll) {
      const auto r =
          TestFixture::run({.shape = s, .dtype = dtype, .activation = kind}, input, input, {input}, ones, bias);
      for (int64_t x = 0; x < 3; ++x) EXPECT_TRUE(std::isnan(r.output.at(0, 0, 0, x))) << int(kind);
      for (int64_t x = 0; x < 3; ++x) EXPECT_TRUE(std::isnan(r.input_gradient.at(0, 0, 0, x))) << int(kind);
    }
  }
}

// A checkpoint may hold NaN of any bits. Rounded to 16 bits as a number, 0x7FFFFFFF would become -0.
TYPED_TEST(NormTest, LetsNanOfAnyBitsThrough) {
  const MapShape s = this->shape(1, 2, 1, 5);
  for (const uint32_t bits : {0x7FFFFFFFU, 0xFFFFFFFFU, 0x7F800001U, 0xFFC00000U}) {
    std::vector<float> scale(s.padded_channels()), shift(s.padded_channels());
    scale[0] = scale[1] = 1;
    shift[1] = std::bit_cast<float>(bits);
    for (DataType dtype : kDataTypes) {
      const TestMap input = TestMap::random(s, dtype, 1);
      TestMap output(s, dtype);
      TypeParam::scale_shift({.shape = s,
                              .dtype = dtype,
                              .activation = UnitActivation::kRelu,
                              .input = input.data(),
                              .scale = scale.data(),
                              .shift = shift.data(),
                              .output = output.data()});
      output.expect([&](int64_t, int64_t c, int64_t, int64_t x) {
        return c == 1 ? std::nan("") : std::max(input.at(0, 0, 0, x), 0.0);
      });
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::norm_test
