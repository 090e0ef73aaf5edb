// The kernels of oneDNN as the plan uses them, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution.h"

#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/isa.h"
#include "trainyard/nn/cpu/kernels/map_for_test.h"

namespace trainyard::nn::cpu {

static std::ostream& operator<<(std::ostream& out, const ConvolutionShape& s) {
  return out << s.batch << " x " << s.in_channels << " -> " << s.out_channels << " groups " << s.groups << ", "
             << s.in_height << " x " << s.in_width << ", kernel " << s.kernel_height << " x " << s.kernel_width
             << (s.dtype == DataType::kFloat ? ", float" : ", bfloat16");
}

namespace {

using Direction = ConvolutionDirection;
using Algorithm = ConvolutionAlgorithm;

// Bytes at a multiple of 64, as the plan's are, all 0xFF (floats are NaN) until something writes them.
at::Tensor bytes(int64_t count) {
  return at::full({count + 1}, 0xFF, at::kByte);
}

// What the last window does not reach is no padding.
ConvolutionShape sized(ConvolutionShape s) {
  const auto out = [](int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after) {
    return (in + before + after - dilation * (kernel - 1) - 1) / stride + 1;
  };
  s.out_height = out(s.in_height, s.kernel_height, s.stride_height, s.dilation_height, s.top, s.bottom);
  s.out_width = out(s.in_width, s.kernel_width, s.stride_width, s.dilation_width, s.left, s.right);
  s.bottom = (s.out_height - 1) * s.stride_height + s.dilation_height * (s.kernel_height - 1) + 1 - s.in_height - s.top;
  s.right = (s.out_width - 1) * s.stride_width + s.dilation_width * (s.kernel_width - 1) + 1 - s.in_width - s.left;
  return s;
}

ConvolutionShape square(int64_t batch, int64_t in, int64_t out, int64_t height, int64_t width, int64_t kernel,
                        int64_t stride, int64_t padding) {
  return sized({.batch = batch,
                .in_channels = in,
                .out_channels = out,
                .in_height = height,
                .in_width = width,
                .kernel_height = kernel,
                .kernel_width = kernel,
                .stride_height = stride,
                .stride_width = stride,
                .top = padding,
                .left = padding,
                .bottom = padding,
                .right = padding});
}

std::vector<ConvolutionShape> odd_shapes() {
  std::vector<ConvolutionShape> shapes{
      square(2, 20, 19, 7, 9, 3, 1, 1), square(3, 19, 33, 8, 5, 3, 2, 1),   square(1, 24, 7, 5, 5, 1, 1, 0),
      square(2, 17, 40, 9, 7, 1, 2, 0), square(2, 18, 21, 15, 13, 7, 2, 3), square(1, 40, 40, 14, 14, 3, 1, 1),
      square(2, 16, 16, 4, 4, 5, 1, 2),
  };
  // TensorFlow's padding: the odd pixel at the bottom right.
  shapes.push_back(sized({.batch = 2,
                          .in_channels = 29,
                          .out_channels = 20,
                          .in_height = 8,
                          .in_width = 6,
                          .kernel_height = 3,
                          .kernel_width = 3,
                          .stride_height = 2,
                          .stride_width = 2,
                          .bottom = 1,
                          .right = 1}));
  shapes.push_back(sized({.batch = 2,
                          .in_channels = 20,
                          .out_channels = 9,
                          .in_height = 7,
                          .in_width = 11,
                          .kernel_height = 1,
                          .kernel_width = 7,
                          .left = 3,
                          .right = 3}));
  shapes.push_back(sized({.batch = 1,
                          .in_channels = 18,
                          .out_channels = 23,
                          .in_height = 9,
                          .in_width = 9,
                          .kernel_height = 3,
                          .kernel_width = 3,
                          .dilation_height = 2,
                          .dilation_width = 2,
                          .top = 2,
                          .left = 2,
                          .bottom = 2,
                          .right = 2}));
  // Groups of whole blocks, and of one channel.
  ConvolutionShape grouped = square(2, 48, 96, 6, 5, 3, 1, 1), depthwise = square(2, 21, 21, 8, 7, 3, 2, 1);
  grouped.groups = 3;
  depthwise.groups = 21;
  shapes.push_back(grouped);
  shapes.push_back(depthwise);
  ConvolutionShape with_bias = square(2, 34, 13, 6, 6, 3, 1, 1);
  with_bias.bias = true;
  shapes.push_back(with_bias);
  return shapes;
}

// A problem with its numbers, and what comes out by definition.
struct Problem {
  explicit Problem(const ConvolutionShape& s)
      : shape(s),
        source(TestMap::random(map(s.in_channels, s.in_height, s.in_width), s.dtype, 1)),
        output_gradient(TestMap::random(map(s.out_channels, s.out_height, s.out_width), s.dtype, 2)),
        weights(random_floats(s.out_channels * group_inputs() * s.kernel_height * s.kernel_width, 3)),
        bias(random_floats(s.out_channels, 4)),
        output(output_gradient.shape().elements()),
        source_gradient(source.shape().elements()),
        weights_gradient(weights.size()),
        bias_gradient(bias.size()) {
    for (float& weight : weights) weight = rounded_to(s.dtype, weight);
    output_gradient.each([&](int64_t n, int64_t o, int64_t y, int64_t x) {
      const int64_t at_output = output_gradient.index(n, o, y, x);
      const double gradient = output_gradient.at(n, o, y, x);
      double sum = s.bias ? bias[static_cast<size_t>(o)] : 0;
      const int64_t group = o / (s.out_channels / s.groups);
      for (int64_t i = 0; i < group_inputs(); ++i) {
        const int64_t channel = group * group_inputs() + i;
        for (int64_t ky = 0; ky < s.kernel_height; ++ky) {
          const int64_t row = y * s.stride_height + ky * s.dilation_height - s.top;
          for (int64_t kx = 0; kx < s.kernel_width; ++kx) {
            const int64_t column = x * s.stride_width + kx * s.dilation_width - s.left;
            if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
            const auto w = static_cast<size_t>(((o * group_inputs() + i) * s.kernel_height + ky) * s.kernel_width + kx);
            const double value = source.at(n, channel, row, column);
            sum += weights[w] * value;
            source_gradient[static_cast<size_t>(source.index(n, channel, row, column))] += weights[w] * gradient;
            weights_gradient[w] += value * gradient;
          }
        }
      }
      output[static_cast<size_t>(at_output)] = sum;
      bias_gradient[static_cast<size_t>(o)] += gradient;
    });
  }

  MapShape map(int64_t channels, int64_t height, int64_t width) const {
    return {shape.batch, channels, height, width, channel_block()};
  }
  int64_t group_inputs() const { return shape.in_channels / shape.groups; }

  ConvolutionShape shape;
  TestMap source, output_gradient;
  std::vector<float> weights, bias;
  std::vector<double> output, source_gradient;  // by TestMap::index
  std::vector<double> weights_gradient, bias_gradient;
};

at::Tensor copy_of(const TestMap& map) {
  const int64_t count = map.shape().elements() * size_of(map.dtype());
  at::Tensor copy = bytes(count);
  std::memcpy(copy.data_ptr(), map.data(), static_cast<size_t>(count));
  return copy;
}

TestMap as_map(const at::Tensor& copy, const MapShape& shape, DataType dtype) {
  TestMap map(shape, dtype);
  std::memcpy(map.data(), copy.data_ptr(), static_cast<size_t>(shape.elements() * size_of(dtype)));
  return map;
}

// Runs a kernel on memory that is aligned as the plan's.
struct Runner {
  explicit Runner(const ConvolutionKernel& k)
      : kernel(k), packed(bytes(k.weights_bytes())), scratch(bytes(k.scratch_bytes())) {}

  TestMap forward(const Problem& p, const TestMap* before = nullptr) {
    kernel.pack(p.weights.data(), packed.data_ptr());
    at::Tensor source = copy_of(p.source);
    if (p.shape.plain_input) source = plain_source(p);
    at::Tensor output = before != nullptr ? copy_of(*before) : copy_of({p.output_gradient.shape(), p.shape.dtype});
    kernel.forward(source.data_ptr(), packed.data_ptr(), p.shape.bias ? p.bias.data() : nullptr, output.data_ptr(),
                   scratch.data_ptr());
    return as_map(output, p.output_gradient.shape(), p.shape.dtype);
  }
  TestMap backward_data(const Problem& p) {
    kernel.pack(p.weights.data(), packed.data_ptr());
    const at::Tensor gradient = copy_of(p.output_gradient);
    at::Tensor result = copy_of({p.source.shape(), p.shape.dtype});
    kernel.backward_data(gradient.data_ptr(), packed.data_ptr(), result.data_ptr(), scratch.data_ptr());
    return as_map(result, p.source.shape(), p.shape.dtype);
  }
  struct Gradients {
    std::vector<float> weights, bias;
  };
  Gradients backward_weights(const Problem& p) {
    const at::Tensor source = p.shape.plain_input ? plain_source(p) : copy_of(p.source);
    const at::Tensor gradient = copy_of(p.output_gradient);
    Gradients result{std::vector<float>(p.weights.size(), std::nanf("")),
                     std::vector<float>(p.bias.size(), std::nanf(""))};
    kernel.backward_weights(source.data_ptr(), gradient.data_ptr(), packed.data_ptr(),
                            p.shape.bias ? result.bias.data() : nullptr, scratch.data_ptr());
    kernel.unpack(packed.data_ptr(), result.weights.data());
    return result;
  }

  static at::Tensor plain_source(const Problem& p) {
    const MapShape& s = p.source.shape();
    TestMap plain({s.batch, 1, s.channels * s.height, s.width, 1}, p.shape.dtype);  // [N, 1, C * H, W]: plain
    p.source.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
      plain.set(n, 0, c * s.height + y, x, p.source.at(n, c, y, x));
    });
    return copy_of(plain);
  }

  const ConvolutionKernel& kernel;
  at::Tensor packed, scratch;
};

std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, Direction direction,
                                        Algorithm algorithm = Algorithm::kDirect) {
  return ConvolutionKernel::make(shape, {.direction = direction, .algorithm = algorithm});
}

// Sums of `terms` floats: what rounding of each costs, added up as a random walk, with room.
double tolerance(int64_t terms) {
  return 1e-6 * std::sqrt(static_cast<double>(terms)) * 4;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, double allowed) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], allowed * std::max(1.0, std::abs(expected[i]))) << "at " << i;
  }
}

// ||a - b|| / ||b|| over the places of a map, pad lanes included.
double relative_error(const TestMap& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  actual.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    const double want = expected[static_cast<size_t>(actual.index(n, c, y, x))];
    difference += std::pow(actual.at(n, c, y, x) - want, 2);
    norm += want * want;
  });
  return std::sqrt(difference / norm);
}

auto at_index(const TestMap& map, const std::vector<double>& values) {
  return [&map, &values](int64_t n, int64_t c, int64_t y, int64_t x) {
    return values[static_cast<size_t>(map.index(n, c, y, x))];
  };
}

void expect_agreement(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.shape);
  const int64_t window = p.shape.kernel_height * p.shape.kernel_width;
  const auto forward = make(p.shape, Direction::kForward);
  ASSERT_NE(forward, nullptr);
  Runner(*forward).forward(p).expect(at_index(p.output_gradient, p.output), tolerance(p.group_inputs() * window));
  if (!p.shape.plain_input) {
    const auto data = make(p.shape, Direction::kBackwardData);
    ASSERT_NE(data, nullptr);
    Runner(*data).backward_data(p).expect(at_index(p.source, p.source_gradient),
                                          tolerance(p.shape.out_channels / p.shape.groups * window));
  }
  const auto weights = make(p.shape, Direction::kBackwardWeights);
  if (isa() == Isa::kAvx2 && weights == nullptr) return;  // not for all wide windows: the plan uses ATen then
  ASSERT_NE(weights, nullptr);
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  const double allowed = tolerance(p.shape.batch * p.shape.out_height * p.shape.out_width);
  expect_near(gradients.weights, p.weights_gradient, allowed);
  if (p.shape.bias) expect_near(gradients.bias, p.bias_gradient, allowed);
}

TEST(Convolution, DirectFloatAgreesWithTheDefinition) {
  for (const ConvolutionShape& shape : odd_shapes()) expect_agreement(Problem(shape));
}

// Sums of products of 16-bit numbers are kept in float: only the map that is written is rounded. Below AVX-512 oneDNN
// has no such kernels, which the plan learns from null.
TEST(Convolution, DirectBfloat16AgreesWithTheDefinition) {
  for (ConvolutionShape shape : odd_shapes()) {
    shape.dtype = DataType::kBfloat16;
    if (isa() == Isa::kAvx2) {
      EXPECT_EQ(make(shape, Direction::kForward), nullptr) << shape;
    } else {
      expect_agreement(Problem(shape));
    }
  }
}

TEST(Convolution, ReadsPlainImages) {
  ConvolutionShape shape = square(2, 3, 32, 17, 15, 7, 2, 3);
  shape.plain_input = true;
  expect_agreement(Problem(shape));
  shape.dtype = DataType::kBfloat16;
  if (isa() == Isa::kAvx512Bf16) expect_agreement(Problem(shape));
}

TEST(Convolution, AddsThenActivates) {
  const Problem p(square(2, 22, 19, 6, 7, 3, 1, 1));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kFloat, 9);
  for (const bool sum : {false, true}) {
    const auto kernel =
        ConvolutionKernel::make(p.shape, {.inference = true, .sum = sum, .activation = UnitActivation::kRelu});
    ASSERT_NE(kernel, nullptr);
    const auto expected = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
      const double added = sum ? before.at(n, c, y, x) : 0;
      return std::max(p.output[static_cast<size_t>(before.index(n, c, y, x))] + added, 0.0);
    };
    Runner(*kernel).forward(p, sum ? &before : nullptr).expect(expected, tolerance(198));
  }
}

// Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016: the transforms multiply by numbers of
// different size, which costs digits. Measured for these: 6e-7 to 1.05e-6 by norm, direct sums 2e-7 (AVX2: 8e-7).
TEST(Convolution, WinogradLosesLittle) {
  constexpr double kBound = 1.5e-6;
  int kernels = 0;
  for (const int64_t channels : {32, 64, 256}) {
    const Problem p(square(2, channels, 64, 14, 14, 3, 1, 1));
    const double direct = relative_error(Runner(*make(p.shape, Direction::kForward)).forward(p), p.output);
    EXPECT_LE(direct, 1e-6);
    if (const auto kernel = make(p.shape, Direction::kForward, Algorithm::kWinograd)) {
      ++kernels;
      const TestMap output = Runner(*kernel).forward(p);
      output.expect_clean();
      EXPECT_LE(relative_error(output, p.output), kBound) << p.shape;
      EXPECT_GT(relative_error(output, p.output), direct) << "was it Winograd at all?";
    }
    if (const auto kernel = make(p.shape, Direction::kBackwardData, Algorithm::kWinograd)) {
      ++kernels;
      const TestMap gradient = Runner(*kernel).backward_data(p);
      gradient.expect_clean();
      EXPECT_LE(relative_error(gradient, p.source_gradient), kBound) << p.shape;
    }
  }
  EXPECT_EQ(kernels > 0, isa() != Isa::kAvx2) << "oneDNN has Winograd for AVX-512";
}

TEST(Convolution, IsNullWithoutAKernel) {
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 1, 1, 0), Direction::kForward, Algorithm::kWinograd), nullptr) << "1 x 1";
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 3, 2, 1), Direction::kForward, Algorithm::kWinograd), nullptr) << "stride 2";
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 5, 1, 2), Direction::kForward, Algorithm::kWinograd), nullptr) << "5 x 5";
  // Groups that are no whole blocks: only oneDNN's reference has them.
  ConvolutionShape split = square(2, 12, 12, 8, 8, 3, 1, 1);
  split.groups = 3;
  for (const Direction direction : {Direction::kForward, Direction::kBackwardData, Direction::kBackwardWeights}) {
    EXPECT_EQ(make(split, direction), nullptr);
  }
  // A shape that does not fit together.
  ConvolutionShape wrong = square(2, 32, 32, 8, 8, 3, 1, 1);
  ++wrong.out_width;
  EXPECT_EQ(make(wrong, Direction::kForward), nullptr);
}

// The tests of smaller instruction sets lean on it: CMakeLists.txt sets the limit.
TEST(Isa, ObeysTheLimit) {
  const char* const limit = std::getenv("DNNL_MAX_CPU_ISA");
  const std::string_view name = limit != nullptr ? limit : "";
  if (name == "AVX2") {
    EXPECT_EQ(isa(), Isa::kAvx2);
  } else if (name == "AVX512_CORE") {
    EXPECT_NE(isa(), Isa::kAvx512Bf16);
  }
  EXPECT_EQ(channel_block(), isa() == Isa::kAvx2 ? 8 : 16);
  EXPECT_STREQ(to_string(Isa::kAvx512Bf16), "AVX-512 with BF16");
}

}  // namespace
}  // namespace trainyard::nn::cpu
