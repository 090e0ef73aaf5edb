// What the tests of convolutions have in common: problems with what comes out by definition, and kernels run on memory
// as the plan's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution_shapes.h"
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu {

inline std::ostream& operator<<(std::ostream& out, const ConvolutionShape& s) {
  return out << s.batch << " x " << s.in_channels << " -> " << s.out_channels << " groups " << s.groups << ", "
             << s.in_height << " x " << s.in_width << ", kernel " << s.kernel_height << " x " << s.kernel_width
             << ", stride " << s.stride_height << " x " << s.stride_width << ", dilation " << s.dilation_height << " x "
             << s.dilation_width << ", padding " << s.top << " " << s.bottom << " " << s.left << " " << s.right
             << (s.dtype == DataType::kFloat ? ", float" : ", bfloat16");
}

// Bytes at a multiple of 64, as the plan's are, all 0xFF (floats are NaN) until something writes them.
inline at::Tensor bytes(int64_t count) {
  return at::full({count + 1}, 0xFF, at::kByte);
}

// Every kind of shape, on small images.
inline std::vector<ConvolutionShape> odd_shapes() {
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
  const auto grouped = [&](ConvolutionShape shape, int64_t groups, int64_t dilation = 1, bool bias = false) {
    shape.groups = groups;
    shape.dilation_height = shape.dilation_width = dilation;
    shape.bias = bias;
    shapes.push_back(sized(shape));
  };
  grouped(square(2, 48, 96, 6, 5, 3, 1, 1), 3);            // whole blocks
  grouped(square(2, 80, 40, 5, 6, 3, 1, 1), 2);            // two and a half blocks to less than two
  grouped(square(2, 20, 20, 9, 10, 3, 1, 1), 5, 1, true);  // 4 channels, and a last block that they do not fill
  grouped(square(2, 24, 24, 9, 9, 3, 2, 1), 3);            // 8 channels
  grouped(square(3, 44, 44, 11, 6, 5, 2, 2), 22);          // 2 channels
  grouped(square(2, 40, 40, 9, 18, 3, 1, 2), 5, 2);        // 8 channels, dilated
  grouped(square(2, 120, 120, 4, 5, 3, 1, 1), 5);          // 24 channels: blocks belong to two groups
  grouped(square(2, 57, 57, 5, 5, 3, 2, 1), 3, 1, true);   // 19 channels
  grouped(square(1, 64, 192, 7, 5, 3, 1, 1), 64);          // three channels from each
  grouped(square(1, 888, 888, 3, 3, 3, 1, 1), 37);         // too many zeros on whole blocks
  grouped(square(2, 6, 9, 5, 5, 3, 1, 1), 3, 1, true);     // 2 channels to 3, all in a block
  grouped(square(2, 3, 5, 7, 5, 3, 1, 1), 1, 1, true);     // narrow
  grouped(square(2, 21, 21, 8, 7, 3, 2, 1), 21);           // depthwise
  grouped(square(2, 37, 37, 9, 17, 5, 1, 2), 37);
  grouped(square(2, 37, 37, 9, 17, 7, 1, 3), 37, 1, true);
  grouped(square(5, 19, 19, 13, 12, 5, 2, 2), 19, 1, true);
  grouped(square(1, 17, 17, 21, 5, 7, 3, 3), 17);
  grouped(square(2, 35, 20, 15, 24, 3, 1, 4), 1, 4);  // wide reach
  grouped(square(1, 24, 16, 9, 16, 14, 1, 7), 1);     // wide window
  ConvolutionShape with_bias = square(2, 34, 13, 6, 6, 3, 1, 1);
  with_bias.bias = true;
  shapes.push_back(with_bias);
  return shapes;
}

// Random shapes on maps of 1 to 4 rows and columns: strides up to 4, kernels up to 7, dilation, groups, and padding
// that differs from side to side, so that many kernels have weights that meet no pixel.
inline std::vector<ConvolutionShape> narrow_shapes(size_t count) {
  std::vector<ConvolutionShape> shapes{
      square(5, 32, 32, 1, 1, 3, 2, 1), square(5, 16, 32, 4, 1, 5, 2, 2), square(2, 32, 16, 3, 2, 7, 4, 3),
      square(3, 32, 48, 2, 3, 5, 4, 2), square(2, 20, 19, 1, 4, 3, 3, 1),
  };
  std::mt19937 random(45);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  constexpr int64_t kChannels[] = {1, 3, 8, 16, 24, 32}, kGroups[] = {1, 1, 1, 2, 3, 5};
  while (shapes.size() < count) {
    ConvolutionShape s{.batch = draw(1, 5), .groups = kGroups[draw(0, 5)]};
    s.in_channels = s.groups * kChannels[draw(0, 5)];
    s.out_channels = s.groups * kChannels[draw(0, 5)];
    if (draw(0, 5) == 0) s.groups = s.in_channels = s.out_channels = draw(5, 40);  // depthwise
    s.in_height = draw(1, 4);
    s.in_width = draw(1, 4);
    s.kernel_height = draw(1, 7);
    s.kernel_width = draw(1, 7);
    s.stride_height = draw(1, 4);
    s.stride_width = draw(1, 4);
    if (draw(0, 2) == 0) s.dilation_height = draw(1, 3);
    if (draw(0, 2) == 0) s.dilation_width = draw(1, 3);
    const int64_t rows = s.dilation_height * (s.kernel_height - 1), columns = s.dilation_width * (s.kernel_width - 1);
    s.top = draw(0, rows);
    s.left = draw(0, columns);
    const bool alike = draw(0, 1) == 0;
    s.bottom = alike ? s.top : draw(0, rows);
    s.right = alike ? s.left : draw(0, columns);
    if (s.in_height + s.top + s.bottom <= rows || s.in_width + s.left + s.right <= columns) continue;
    shapes.push_back(sized(s));
  }
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

// The cases of odd_shapes(), made once.
inline const std::vector<Problem>& odd_problems(DataType dtype) {
  const auto make = [](DataType of) {
    std::vector<Problem> problems;
    for (ConvolutionShape shape : odd_shapes()) {
      shape.dtype = of;
      problems.emplace_back(shape);
    }
    return problems;
  };
  static const std::vector<Problem> floats = make(DataType::kFloat), sixteens = make(DataType::kBfloat16);
  return dtype == DataType::kFloat ? floats : sixteens;
}

inline at::Tensor copy_of(const TestMap& map) {
  const int64_t count = map.shape().elements() * size_of(map.dtype());
  at::Tensor copy = bytes(count);
  std::memcpy(copy.data_ptr(), map.data(), static_cast<size_t>(count));
  return copy;
}

inline TestMap as_map(const at::Tensor& copy, const MapShape& shape, DataType dtype) {
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

// Sums of `terms` floats: what rounding of each costs, added up as a random walk, with room.
inline double tolerance(int64_t terms) {
  return 1e-6 * std::sqrt(static_cast<double>(terms)) * 4;
}

inline void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, double allowed) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], allowed * std::max(1.0, std::abs(expected[i]))) << "at " << i;
  }
}

// ||a - b|| / ||b|| over the places of a map, pad lanes included.
inline double relative_error(const TestMap& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  actual.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    const double want = expected[static_cast<size_t>(actual.index(n, c, y, x))];
    difference += std::pow(actual.at(n, c, y, x) - want, 2);
    norm += want * want;
  });
  return std::sqrt(difference / norm);
}

// The same of plain numbers.
inline double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

inline auto at_index(const TestMap& map, const std::vector<double>& values) {
  return [&map, &values](int64_t n, int64_t c, int64_t y, int64_t x) {
    return values[static_cast<size_t>(map.index(n, c, y, x))];
  };
}

// `make(shape, direction)` for each direction: a kernel that agrees with the definition, or null if `may_lack`.
template <typename Make>
void expect_agreement(const Problem& p, const Make& make, bool may_lack = false) {
  SCOPED_TRACE(::testing::Message() << p.shape);
  const int64_t window = p.shape.kernel_height * p.shape.kernel_width;
  const std::unique_ptr<ConvolutionKernel> forward = make(p.shape, ConvolutionDirection::kForward);
  EXPECT_TRUE(forward != nullptr || may_lack);
  if (forward != nullptr) {
    Runner(*forward).forward(p).expect(at_index(p.output_gradient, p.output), tolerance(p.group_inputs() * window));
  }
  if (!p.shape.plain_input) {
    const std::unique_ptr<ConvolutionKernel> data = make(p.shape, ConvolutionDirection::kBackwardData);
    EXPECT_TRUE(data != nullptr || may_lack);
    if (data != nullptr) {
      Runner(*data).backward_data(p).expect(at_index(p.source, p.source_gradient),
                                            tolerance(p.shape.out_channels / p.shape.groups * window));
    }
  }
  const std::unique_ptr<ConvolutionKernel> weights = make(p.shape, ConvolutionDirection::kBackwardWeights);
  EXPECT_TRUE(weights != nullptr || may_lack);
  if (weights == nullptr) return;
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  const double allowed = tolerance(p.shape.batch * p.shape.out_height * p.shape.out_width);
  expect_near(gradients.weights, p.weights_gradient, allowed);
  if (p.shape.bias) expect_near(gradients.bias, p.bias_gradient, allowed);
}

// Returns what a forward pass gives that adds to `before`, with a ReLU behind the sum.
inline std::vector<double> added_then_relu(const Problem& p, const TestMap& before) {
  std::vector<double> expected(p.output.size());
  before.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    const auto at = static_cast<size_t>(before.index(n, c, y, x));
    expected[at] = std::max(p.output[at] + before.at(n, c, y, x), 0.0);
  });
  return expected;
}

}  // namespace trainyard::nn::cpu
