// Batch normalization's kernels against their definition in double precision, for each instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/nn/cpu/kernels/kernels.h"

namespace trainyard::nn::cpu {
namespace {

constexpr UnitActivation kAll[] = {UnitActivation::kNone,    UnitActivation::kRelu,      UnitActivation::kRelu6,
                                   UnitActivation::kSilu,    UnitActivation::kHardSwish, UnitActivation::kHardSigmoid,
                                   UnitActivation::kSigmoid, UnitActivation::kGelu,      UnitActivation::kTanh};

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

double activation(UnitActivation kind, double x) {
  switch (kind) {
    case UnitActivation::kNone:
      return x;
    case UnitActivation::kRelu:
      return std::max(x, 0.0);
    case UnitActivation::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case UnitActivation::kSilu:
      return x * logistic(x);
    case UnitActivation::kHardSwish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case UnitActivation::kHardSigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
    case UnitActivation::kSigmoid:
      return logistic(x);
    case UnitActivation::kGelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case UnitActivation::kTanh:
      return std::tanh(x);
  }
  return 0;
}

// By central differences: none of these functions is given a formula twice. Not at a corner.
double derivative(UnitActivation kind, double x) {
  const double step = 1e-5;
  return (activation(kind, x + step) - activation(kind, x - step)) / (2 * step);
}

struct InstructionSet {
  const char* name;
  int64_t lanes;
  void (*forward)(const NormForward&);
  void (*backward)(const NormBackward&);
  void (*scale_shift)(const ScaleShift&);
};

// A map of either dtype with the values that it holds in double, [N, C, pixels].
class Map {
 public:
  Map(const MapShape& shape, DataType dtype)
      : shape_(shape),
        dtype_(dtype),
        bytes_(shape.elements() * size_of(dtype)),
        values(shape.batch * shape.channels * shape.pixels()) {}

  static Map normal(const MapShape& shape, DataType dtype, int seed, double mean = 0, double deviation = 1) {
    Map map(shape, dtype);
    std::mt19937 random(seed);
    std::normal_distribution<double> distribution(mean, deviation);
    map.each([&](int64_t i, int64_t element) { map.values[i] = map.put(element, distribution(random)); });
    return map;
  }
  // What a kernel wrote.
  void read() {
    each([&](int64_t i, int64_t element) { values[i] = get(element); });
  }
  void fill_bytes(int value) { std::fill(bytes_.begin(), bytes_.end(), static_cast<uint8_t>(value)); }
  void* data() { return bytes_.data(); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  int64_t channel_of(int64_t i) const { return i / shape_.pixels() % shape_.channels; }

  bool pad_lanes_are_zero() const {
    for (int64_t e = 0; e < shape_.elements(); ++e) {
      const int64_t block = e / (shape_.block * shape_.pixels()) % shape_.blocks();
      if (block * shape_.block + e % shape_.block >= shape_.channels && get(e) != 0) return false;
    }
    return true;
  }
  // Element in the map of value i.
  int64_t place(int64_t i) const {
    const int64_t pixels = shape_.pixels(), pixel = i % pixels, c = channel_of(i), n = i / pixels / shape_.channels;
    return ((n * shape_.blocks() + c / shape_.block) * pixels + pixel) * shape_.block + c % shape_.block;
  }

 private:
  template <typename Use>
  void each(Use&& use) {
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) use(i, place(i));
  }
  double get(int64_t element) const {
    uint32_t bits = 0;
    std::memcpy(dtype_ == DataType::kFloat ? reinterpret_cast<char*>(&bits) : reinterpret_cast<char*>(&bits) + 2,
                &bytes_[element * size_of(dtype_)], size_of(dtype_));
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  double put(int64_t element, double value) {
    const float number = static_cast<float>(value);
    const char* const bits = reinterpret_cast<const char*>(&number);  // bfloat16 inputs: cut off, which is exact
    std::memcpy(&bytes_[element * size_of(dtype_)], dtype_ == DataType::kFloat ? bits : bits + 2, size_of(dtype_));
    return get(element);
  }

  MapShape shape_;
  DataType dtype_;
  std::vector<uint8_t> bytes_;

 public:
  std::vector<double> values;
};

struct Case {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;
  bool residual = false;
  int gradients = 1;
  bool in_place = false;  // outputs over inputs, wherever that is allowed
  double mean = 0.5, deviation = 2;
};

class NormKernels : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam().lanes == 16 && !__builtin_cpu_supports("x86-64-v4")) GTEST_SKIP() << "no AVX-512";
  }
  MapShape shape(int64_t batch, int64_t channels, int64_t height, int64_t width) const {
    return {.batch = batch, .channels = channels, .height = height, .width = width, .block = GetParam().lanes};
  }
  void check(const Case& c) const;
};

std::vector<float> uniform(int64_t count, int seed, double low, double high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(static_cast<float>(low), static_cast<float>(high));
  std::vector<float> result(count);
  for (float& value : result) value = distribution(random);
  return result;
}

// `error` in units of the last place that the dtype can hold near `expected`, or of the sums' fp32.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, DataType dtype, double slack,
                  const char* what) {
  const double relative = dtype == DataType::kFloat ? 2e-6 : 1.0 / 256;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = relative * std::abs(expected[i]) + slack;
    ASSERT_NEAR(actual[i], expected[i], allowed) << what << ", value " << i;
  }
}

void NormKernels::check(const Case& c) const {
  const MapShape& s = c.shape;
  const double epsilon = 1e-3, count = static_cast<double>(s.batch * s.pixels());
  const int64_t padded = s.padded_channels();
  Map input = Map::normal(s, c.dtype, 1, c.mean, c.deviation), residual = Map::normal(s, c.dtype, 2);
  const std::vector<double> x = input.values;
  const std::vector<float> weight = uniform(s.channels, 3, 0.5, 2), bias = uniform(s.channels, 4, -1, 1);

  // By definition.
  std::vector<double> mean(padded), variance(padded), u(x.size()), expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) mean[input.channel_of(i)] += x[i] / count;
  for (size_t i = 0; i < x.size(); ++i)
    variance[input.channel_of(i)] += std::pow(x[i] - mean[input.channel_of(i)], 2) / count;
  const auto normal = [&](size_t i) {
    const int64_t k = input.channel_of(i);
    return (x[i] - mean[k]) / std::sqrt(variance[k] + epsilon);
  };
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t k = input.channel_of(i);
    u[i] = normal(i) * weight[k] + bias[k] + (c.residual ? residual.values[i] : 0);
    expected[i] = activation(c.activation, u[i]);
  }

  const bool keeps_mask = c.residual && c.activation == UnitActivation::kRelu;
  std::vector<uint8_t> mask(s.elements() / 8, 0xAA);
  // Not zero before: what is not written shows.
  const std::vector<float> dirty(padded, -77.0F);
  std::vector<float> got_mean = dirty, got_variance = dirty, scale = dirty, shift = dirty;
  Map output(s, c.dtype), input_copy = input;
  output.fill_bytes(0x55);
  void* const into = !c.in_place ? output.data() : c.residual ? residual.data() : input_copy.data();
  GetParam().forward({.shape = s,
                      .dtype = c.dtype,
                      .activation = c.activation,
                      .epsilon = epsilon,
                      .input = input_copy.data(),
                      .residual = c.residual ? residual.data() : nullptr,
                      .weight = weight.data(),
                      .bias = bias.data(),
                      .output = into,
                      .mask = keeps_mask ? mask.data() : nullptr,
                      .mean = got_mean.data(),
                      .variance = got_variance.data(),
                      .scale = scale.data(),
                      .shift = shift.data()});
  Map& written = !c.in_place ? output : c.residual ? residual : input_copy;
  written.read();
  // The definition's rounding of scale and shift to fp32 costs what the mean is in deviations.
  const double slack = 2e-6 * (4 + std::abs(c.mean) / c.deviation);
  expect_close(written.values, expected, c.dtype, slack, "output");
  EXPECT_TRUE(written.pad_lanes_are_zero());
  for (int64_t k = 0; k < padded; ++k) {
    EXPECT_NEAR(got_mean[k], mean[k], 1e-6 * c.deviation + 1e-7 * std::abs(c.mean)) << k;
    EXPECT_NEAR(got_variance[k], variance[k], 5e-6 * variance[k]) << k;
    const double expected_scale = k < s.channels ? weight[k] / std::sqrt(variance[k] + epsilon) : 0;
    EXPECT_NEAR(scale[k], expected_scale, 3e-6 * std::abs(expected_scale)) << k;
    EXPECT_EQ(shift[k] == 0, k >= s.channels) << k;
  }
  for (size_t i = 0; keeps_mask && i < x.size(); ++i) {
    const int64_t place = input.place(static_cast<int64_t>(i));
    ASSERT_EQ((mask[place / 8] >> (place % 8)) & 1, u[i] > 0) << i;
  }

  // Backward, by definition.
  std::vector<Map> gradients;
  for (int g = 0; g < c.gradients; ++g) gradients.push_back(Map::normal(s, c.dtype, 10 + g, 0.1, 1));
  std::vector<double> d(x.size()), expected_gradient(x.size()), bias_gradient(padded), weight_gradient(padded);
  for (size_t i = 0; i < x.size(); ++i) {
    for (const Map& gradient : gradients) d[i] += gradient.values[i];
    d[i] *= derivative(c.activation, u[i]);
    bias_gradient[input.channel_of(i)] += d[i];
    weight_gradient[input.channel_of(i)] += d[i] * normal(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t k = input.channel_of(i);
    expected_gradient[i] = weight[k] / std::sqrt(variance[k] + epsilon) *
                           (d[i] - bias_gradient[k] / count - normal(i) * weight_gradient[k] / count);
  }

  std::vector<float> got_weight = dirty, got_bias = dirty;
  Map gradient(s, c.dtype), masked(s, c.dtype);
  gradient.fill_bytes(0x55);
  masked.fill_bytes(0x55);
  NormBackward backward = {.shape = s,
                           .dtype = c.dtype,
                           .activation = c.activation,
                           .epsilon = epsilon,
                           .gradient_count = c.gradients,
                           .input = input.data(),
                           .mask = keeps_mask ? mask.data() : nullptr,
                           .mean = got_mean.data(),
                           .variance = got_variance.data(),
                           .scale = scale.data(),
                           .shift = shift.data(),
                           .masked = c.residual ? masked.data() : nullptr,
                           .input_gradient = c.in_place ? input.data() : gradient.data(),
                           .weight_gradient = got_weight.data(),
                           .bias_gradient = got_bias.data()};
  for (int g = 0; g < c.gradients; ++g) backward.gradients[g] = gradients[g].data();
  if (c.in_place && c.residual) backward.masked = gradients.back().data();
  GetParam().backward(backward);
  Map& result = c.in_place ? input : gradient;
  result.read();
  const double largest = *std::max_element(scale.begin(), scale.end());
  // 16-bit maps: d is rounded where it is written down between the passes.
  const double rounding = c.dtype == DataType::kBfloat16 && c.residual ? 1.0 / 64 : 0;
  expect_close(result.values, expected_gradient, c.dtype, largest * (slack + rounding), "input gradient");
  EXPECT_TRUE(result.pad_lanes_are_zero());
  if (c.residual) {
    Map& wrote = c.in_place ? gradients.back() : masked;
    wrote.read();
    expect_close(wrote.values, d, c.dtype, 1e-6, "residual's gradient");
    EXPECT_TRUE(wrote.pad_lanes_are_zero());
  }
  for (int64_t k = 0; k < padded; ++k) {
    const double unit = k < s.channels ? std::sqrt(count) * c.gradients * slack : 0;
    EXPECT_NEAR(got_bias[k], bias_gradient[k], 2e-6 * std::abs(bias_gradient[k]) + unit) << k;
    EXPECT_NEAR(got_weight[k], weight_gradient[k], 2e-6 * std::abs(weight_gradient[k]) + unit) << k;
  }
}

TEST_P(NormKernels, FollowTheDefinition) {
  for (int64_t channels : {1, 3, 16, 17, 40}) {
    for (int64_t batch : {1, 3}) {
      for (DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, batch " << batch << ", dtype " << int(dtype));
        check({.shape = shape(batch, channels, 5, 7), .dtype = dtype, .activation = UnitActivation::kRelu});
        check({.shape = shape(batch, channels, 2, 3), .dtype = dtype, .residual = true, .gradients = 2});
        check({.shape = shape(batch, channels, 3, 3),
               .dtype = dtype,
               .activation = UnitActivation::kRelu,
               .residual = true});
      }
    }
  }
}

TEST_P(NormKernels, KnowEveryActivation) {
  for (UnitActivation activation : kAll) {
    for (DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
      SCOPED_TRACE(testing::Message() << "activation " << int(activation) << ", dtype " << int(dtype));
      check({.shape = shape(3, 17, 6, 5), .dtype = dtype, .activation = activation});
    }
  }
}

TEST_P(NormKernels, AddUpGradientsAndWriteOverInputs) {
  for (int gradients : {1, 2, 3, 4}) {
    for (bool residual : {false, true}) {
      for (DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
        SCOPED_TRACE(testing::Message() << gradients << " gradients, residual " << residual << ", dtype "
                                        << int(dtype));
        check({.shape = shape(2, 20, 3, 5),
               .dtype = dtype,
               .activation = UnitActivation::kRelu,
               .residual = residual,
               .gradients = gradients,
               .in_place = true});
      }
    }
  }
}

// Images of more pixels than are summed up in fp32, of pixels that several samples share a sum of, and of one pixel.
TEST_P(NormKernels, CutImagesOfAnySize) {
  check({.shape = shape(2, 9, 45, 67), .activation = UnitActivation::kRelu6});
  check({.shape = shape(70, 9, 4, 4), .activation = UnitActivation::kRelu, .gradients = 2});
  check({.shape = shape(130, 33, 1, 1), .activation = UnitActivation::kRelu});
  check({.shape = shape(1, 17, 1, 1)});
}

TEST_P(NormKernels, KeepASmallVarianceBesideALargeMean) {
  check({.shape = shape(4, 17, 40, 30), .activation = UnitActivation::kSilu, .mean = 1000, .deviation = 0.1});
}

TEST_P(NormKernels, GiveTheSameBitsForAnyNumberOfThreads) {
  const MapShape s = shape(5, 40, 33, 35);
  Map input = Map::normal(s, DataType::kFloat, 1), gradient = Map::normal(s, DataType::kFloat, 2);
  const std::vector<float> bias(s.channels, 0.25F);
  const int threads = omp_get_max_threads();
  std::vector<std::vector<uint8_t>> outputs, gradients;
  std::vector<std::vector<float>> sums;
  for (int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    Map output(s, DataType::kFloat), input_gradient(s, DataType::kFloat);
    const int64_t padded = s.padded_channels();
    std::vector<float> v(6 * padded);
    GetParam().forward({.shape = s,
                        .activation = UnitActivation::kRelu,
                        .input = input.data(),
                        .bias = bias.data(),
                        .output = output.data(),
                        .mean = &v[0],
                        .variance = &v[padded],
                        .scale = &v[2 * padded],
                        .shift = &v[3 * padded]});
    GetParam().backward({.shape = s,
                         .activation = UnitActivation::kRelu,
                         .gradients = {gradient.data()},
                         .input = input.data(),
                         .mean = &v[0],
                         .variance = &v[padded],
                         .scale = &v[2 * padded],
                         .shift = &v[3 * padded],
                         .input_gradient = input_gradient.data(),
                         .weight_gradient = &v[4 * padded],
                         .bias_gradient = &v[5 * padded]});
    outputs.push_back(output.bytes());
    gradients.push_back(input_gradient.bytes());
    sums.push_back(v);
  }
  omp_set_num_threads(threads);
  for (size_t i : {1, 2}) {
    EXPECT_EQ(outputs[i], outputs[0]);
    EXPECT_EQ(gradients[i], gradients[0]);
    EXPECT_EQ(sums[i], sums[0]);
  }
}

TEST_P(NormKernels, ScaleAndShiftGivenNumbers) {
  for (UnitActivation kind : kAll) {
    for (bool with_residual : {false, true}) {
      for (DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
        const MapShape s = shape(3, 19, 5, 3);
        Map input = Map::normal(s, dtype, 1, 0, 3), residual = Map::normal(s, dtype, 2), output(s, dtype);
        output.fill_bytes(0x55);
        std::vector<float> scale = uniform(s.padded_channels(), 3, 0.5, 2),
                           shift = uniform(s.padded_channels(), 4, -1, 1);
        for (int64_t c = s.channels; c < s.padded_channels(); ++c) scale[c] = shift[c] = 0;
        GetParam().scale_shift({.shape = s,
                                .dtype = dtype,
                                .activation = kind,
                                .input = input.data(),
                                .residual = with_residual ? residual.data() : nullptr,
                                .scale = scale.data(),
                                .shift = shift.data(),
                                .output = output.data()});
        output.read();
        std::vector<double> expected(input.values.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          const int64_t k = input.channel_of(i);
          const double u = input.values[i] * scale[k] + shift[k] + (with_residual ? residual.values[i] : 0);
          expected[i] = activation(kind, u);
        }
        SCOPED_TRACE(testing::Message() << "activation " << int(kind) << ", dtype " << int(dtype));
        expect_close(output.values, expected, dtype, 2e-6, "output");
        EXPECT_TRUE(output.pad_lanes_are_zero());
      }
    }
  }
}

// Infinite values and NaN must reach the loss, where training stops.
TEST_P(NormKernels, LetNanThrough) {
  for (UnitActivation kind : kAll) {
    const MapShape s = shape(1, 1, 1, 2);
    Map input = Map::normal(s, DataType::kFloat, 1, NAN), output(s, DataType::kFloat);
    std::vector<float> scale(s.padded_channels()), shift(s.padded_channels());
    scale[0] = 1;
    GetParam().scale_shift({.shape = s,
                            .activation = kind,
                            .input = input.data(),
                            .scale = scale.data(),
                            .shift = shift.data(),
                            .output = output.data()});
    output.read();
    EXPECT_TRUE(std::isnan(output.values[1])) << int(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, NormKernels,
    testing::Values(InstructionSet{"Avx2", 8, avx2::norm_forward, avx2::norm_backward, avx2::scale_shift},
                    InstructionSet{"Avx512", 16, avx512::norm_forward, avx512::norm_backward, avx512::scale_shift}),
    [](const auto& set) { return set.param.name; });

}  // namespace
}  // namespace trainyard::nn::cpu
