#include "trainyard/nn/execution/libtorch_convolution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "trainyard/nn/testing/guarded_memory.h"

namespace trainyard::nn::libtorch_convolution_test {
namespace {

struct Case {
  int64_t batch = 2, in = 4, out = 8, height = 8, width = 8;
  Convolution op;
  int64_t pad = 0;
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat layout = at::MemoryFormat::ChannelsLast;
  int threads = 1;
};

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << "x [" << c.batch << ", " << c.in << ", " << c.height << ", " << c.width << "], " << c.out
            << " channels out, " << c.op.groups << " groups, kernel " << c.op.kernel.height << "x" << c.op.kernel.width
            << ", stride " << c.op.stride.height << "x" << c.op.stride.width << ", padding " << c.pad << ", "
            << toString(c.dtype) << ", " << c.layout << ", " << c.threads << " threads";
}

std::vector<Case> cases() {
  std::vector<Case> result;
  // Where the fault is: channels around the blocks of 8 and 16, strides that divide the image and that do not. AVX-512
  // needs several threads, and samples that they share.
  for (const int64_t channels : {1, 3, 4, 7, 8, 12, 15, 16, 17}) {
    for (const Size2d stride : {Size2d(1), Size2d(2), Size2d(3), Size2d(1, 2), Size2d(2, 1)}) {
      for (const int64_t size : {8, 9}) {
        for (const int threads : {1, 2}) {
          result.push_back({.batch = 3,
                            .in = channels,
                            .out = channels % 2 == 0 ? 8 : 10,
                            .height = size,
                            .width = size,
                            .op = {.stride = stride},
                            .threads = threads});
        }
      }
    }
  }
  // Around it: other windows, padding, groups, layouts and dtypes.
  for (const Size2d kernel : {Size2d(1), Size2d(3)}) {
    for (const Size2d stride : {Size2d(1), Size2d(2)}) {
      for (const int64_t channels : {2, 12}) {
        for (const int64_t groups : {int64_t{1}, int64_t{2}, channels}) {
          for (const int64_t pad : {0, 1}) {
            for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
              result.push_back({.batch = 3,
                                .in = channels,
                                .out = 2 * channels,
                                .op = {.kernel = kernel, .stride = stride, .groups = groups},
                                .pad = pad,
                                .dtype = dtype,
                                .layout = pad == 0 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous,
                                .threads = 2});
            }
          }
        }
      }
    }
  }
  return result;
}

struct Values {
  at::Tensor output, input_gradient, weight_gradient;
};

// Numbers that bfloat16 holds exactly.
struct Problem {
  explicit Problem(const Case& c)
      : x(numbers({c.batch, c.in, c.height, c.width})),
        weight(numbers({c.out, c.in / c.op.groups, c.op.kernel.height, c.op.kernel.width})),
        output_gradient(numbers({c.batch, c.out, (c.height + 2 * c.pad - c.op.kernel.height) / c.op.stride.height + 1,
                                 (c.width + 2 * c.pad - c.op.kernel.width) / c.op.stride.width + 1})) {}
  static at::Tensor numbers(at::IntArrayRef sizes) {
    return ((at::rand(sizes, at::kFloat) * 2 - 1).to(at::kBFloat16)).to(at::kDouble);
  }
  at::Tensor x, weight, output_gradient;  // double
};

// By definition, in double.
Values expected(const Case& c, const Problem& p) {
  Values v{at::zeros_like(p.output_gradient), at::zeros_like(p.x), at::zeros_like(p.weight)};
  const auto x = p.x.accessor<double, 4>(), w = p.weight.accessor<double, 4>(),
             g = p.output_gradient.accessor<double, 4>();
  auto y = v.output.accessor<double, 4>(), dx = v.input_gradient.accessor<double, 4>(),
       dw = v.weight_gradient.accessor<double, 4>();
  const int64_t group_in = c.in / c.op.groups, group_out = c.out / c.op.groups;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.out; ++o) {
      for (int64_t r = 0; r < y.size(2); ++r) {
        for (int64_t s = 0; s < y.size(3); ++s) {
          for (int64_t i = 0; i < group_in; ++i) {
            const int64_t channel = o / group_out * group_in + i;
            for (int64_t a = 0; a < w.size(2); ++a) {
              for (int64_t b = 0; b < w.size(3); ++b) {
                const int64_t row = r * c.op.stride.height - c.pad + a, column = s * c.op.stride.width - c.pad + b;
                if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
                y[n][o][r][s] += w[o][i][a][b] * x[n][channel][row][column];
                dx[n][channel][row][column] += w[o][i][a][b] * g[n][o][r][s];
                dw[o][i][a][b] += x[n][channel][row][column] * g[n][o][r][s];
              }
            }
          }
        }
      }
    }
  }
  return v;
}

bool agrees(const at::Tensor& actual, const at::Tensor& wanted) {
  const at::Tensor a = actual.to(at::kDouble);
  const double bound = actual.scalar_type() == at::kFloat ? 1e-6 : 1e-2;
  return (a - wanted).norm().item<double>() <= bound * std::max(wanted.norm().item<double>(), 1e-3);
}

// What went wrong in `compute`, which is given images, weights and the output's gradient: outside of memory, or
// numbers.
template <typename Compute>
std::string fault(const Case& c, const Compute& compute) {
  const Problem problem(c);
  const Values wanted = expected(c, problem);
  const GuardedMemory guarded;
  std::string text;
  {
    const auto as_given = [&](const at::Tensor& tensor) {
      return at::empty(tensor.sizes(), at::TensorOptions(c.dtype).memory_format(c.layout)).copy_(tensor);
    };
    const Values actual = compute(as_given(problem.x), as_given(problem.weight), as_given(problem.output_gradient));
    if (!agrees(actual.output, wanted.output)) text += "output ";
    if (!agrees(actual.input_gradient, wanted.input_gradient)) text += "input gradient ";
    if (!agrees(actual.weight_gradient, wanted.weight_gradient)) text += "weight gradient ";
  }
  if (guarded.broken() != 0) text += "memory";
  return text;
}

class LibtorchConvolution : public ::testing::Test {
 protected:
  ~LibtorchConvolution() override { at::set_num_threads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(LibtorchConvolution, IsRightAndStaysInsideItsMemory) {
  for (const Case& c : cases()) {
    at::set_num_threads(c.threads);
    const std::array<int64_t, 2> padding{c.pad, c.pad};
    const std::string found = fault(c, [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gradient) {
      const auto [input, weights] = libtorch_convolution_backward(c.op, padding, gradient, x, weight, true, true);
      return Values{libtorch_convolution(c.op, padding, x, weight, {}), input, weights};
    });
    EXPECT_EQ(found, "") << c;
  }
}

// oneDNN's gradient of weights in 16 bits leaves those that meet no pixel as the memory was. That takes a processor
// with AVX512_BF16; a gradient of NaN shows everywhere who makes them zero.
TEST_F(LibtorchConvolution, WeightsThatMeetNoPixelHaveAGradientOfZero) {
  struct Map {
    Convolution op;
    std::array<int64_t, 2> padding, size;
    int met;  // positions of the kernel that meet a pixel
  };
  const auto reach = [](int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; };
  const auto outputs = [&](int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
    return (in + 2 * pad - reach(kernel, dilation)) / stride + 1;
  };
  const auto meets = [&](int64_t k, int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
    for (int64_t o = 0; o < outputs(in, kernel, stride, dilation, pad); ++o) {
      const int64_t pixel = o * stride + k * dilation - pad;
      if (pixel >= 0 && pixel < in) return true;
    }
    return false;
  };
  const at::AutoGradMode on(true);
  // Two of the 3 x 5 positions, in the middle row, meet the two pixels of the first map; in the second all rows do. The
  // windows of the third are wide in one direction.
  for (const Map& map : {Map{{.kernel = {3, 5}, .stride = {2, 3}}, {1, 2}, {1, 2}, 2},
                         Map{{.kernel = {3, 5}, .stride = {1, 3}}, {1, 2}, {2, 2}, 6},
                         Map{{.kernel = {2, 3}, .dilation = {1, 2}}, {0, 2}, {2, 1}, 2}}) {
    const auto& [op, padding, size, met_positions] = map;
    const Size2d kernel = op.kernel, stride = op.stride, dilation = op.dilation;
    const int64_t rows = outputs(size[0], kernel.height, stride.height, dilation.height, padding[0]);
    const int64_t columns = outputs(size[1], kernel.width, stride.width, dilation.width, padding[1]);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const at::MemoryFormat layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const auto nan = [&](at::IntArrayRef sizes) {
          return at::full(sizes, std::nan(""), at::TensorOptions(dtype).memory_format(layout));
        };
        const at::Tensor x = nan({5, 16, size[0], size[1]}), gradient = nan({5, 32, rows, columns});
        at::Tensor weight =
            at::zeros({32, 16, kernel.height, kernel.width}, at::TensorOptions(dtype)).contiguous(layout);
        const at::Tensor direct = libtorch_convolution_backward(op, padding, gradient, x, weight, false, true).weight;
        weight.requires_grad_(true);
        libtorch_convolution(op, padding, x, weight, {}).backward(gradient);
        for (const at::Tensor& found : {direct, weight.grad()}) {
          int met = 0;
          for (int64_t row = 0; row < kernel.height; ++row) {
            for (int64_t column = 0; column < kernel.width; ++column) {
              const at::Tensor place = found.select(2, row).select(2, column);
              const bool here = meets(row, size[0], kernel.height, stride.height, dilation.height, padding[0]) &&
                                meets(column, size[1], kernel.width, stride.width, dilation.width, padding[1]);
              met += here ? 1 : 0;
              EXPECT_TRUE(here ? at::isnan(place).all().item<bool>() : place.eq(0).all().item<bool>())
                  << toString(dtype) << ", " << layout << ", row " << row << ", column " << column;
            }
          }
          EXPECT_EQ(met, met_positions);
        }
      }
    }
  }
}

TEST_F(LibtorchConvolution, HasTheSameGradientsByAutograd) {
  const Case c{.op = {.stride = Size2d(2, 1)}};
  const std::string found = fault(c, [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gradient) {
    const at::AutoGradMode on(true);
    x.requires_grad_(true);
    weight.requires_grad_(true);
    const at::Tensor output = libtorch_convolution(c.op, {0, 0}, x, weight, {});
    output.backward(gradient);
    return Values{output.detach(), x.grad(), weight.grad()};
  });
  EXPECT_EQ(found, "");
}

TEST_F(LibtorchConvolution, AddsABias) {
  const Case c{.op = {.stride = 2}};
  const Problem p(c);
  const at::Tensor bias = Problem::numbers({c.out});
  const at::Tensor with = libtorch_convolution(c.op, {0, 0}, p.x, p.weight, bias);
  const at::Tensor wanted = expected(c, p).output + bias.view({1, -1, 1, 1});
  EXPECT_LE((with - wanted).norm().item<double>(), 1e-12);
}

TEST_F(LibtorchConvolution, GivesTheGradientsThatAreWanted) {
  const Case c{.op = {.stride = 2}};
  const Problem p(c);
  const auto weight = libtorch_convolution_backward(c.op, {0, 0}, p.output_gradient, p.x, p.weight, false, true);
  EXPECT_FALSE(weight.input.defined());
  EXPECT_TRUE(weight.weight.defined());
  const auto input = libtorch_convolution_backward(c.op, {0, 0}, p.output_gradient, p.x, p.weight, true, false);
  EXPECT_TRUE(input.input.defined());
  EXPECT_FALSE(input.weight.defined());
}

// LibTorch's own way, on the same shapes: where it fails, the predicate must have said so. When it does not fail any
// more, the detour can go.
TEST_F(LibtorchConvolution, KnowsWhatLibtorchComputesOutsideOfItsMemory) {
  int faults = 0;
  for (const Case& c : cases()) {
    at::set_num_threads(c.threads);
    const std::array<int64_t, 2> padding{c.pad, c.pad}, stride{c.op.stride.height, c.op.stride.width};
    const std::string found = fault(c, [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gradient) {
      const auto [input, weights, bias] = at::convolution_backward(
          gradient, x, weight, c10::nullopt, stride, padding, {1, 1}, false, {0, 0}, c.op.groups, {true, true, false});
      return Values{at::convolution(x, weight, {}, stride, padding, {1, 1}, false, {0, 0}, c.op.groups), input,
                    weights};
    });
    if (found.empty()) continue;
    ++faults;
    EXPECT_FALSE(libtorch_may_compute(c.op, c.in, padding)) << c << ": " << found;
  }
  EXPECT_GT(faults, 0) << "LibTorch's oneDNN is repaired";
}

// On processors with AVX512_BF16: elsewhere LibTorch's kernels multiply no pairs.
TEST_F(LibtorchConvolution, OneChannelsWeightGradientUsesNothingBehindTheImage) {
  const Convolution op{.kernel = Size2d(1, 2), .stride = Size2d(1, 3)};
  at::Tensor memory = at::full({2 * 2 + 64}, std::nan(""), at::kBFloat16);
  const at::Tensor x = memory.narrow(0, 0, 4).view({2, 1, 1, 2});
  x.copy_(Problem::numbers({2, 1, 1, 2}));
  const at::Tensor gradient = Problem::numbers({2, 24, 1, 1}).to(at::kBFloat16);
  at::Tensor wanted = at::zeros({24, 1, 1, 2}, at::kDouble);
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t o = 0; o < 24; ++o) {
      for (int64_t k = 0; k < 2; ++k) {
        wanted[o][0][0][k] += gradient[n][o][0][0].to(at::kDouble) * x[n][0][0][k].to(at::kDouble);
      }
    }
  }
  for (const at::MemoryFormat layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto options = at::TensorOptions(at::kBFloat16).memory_format(layout);
    const at::Tensor g = at::empty({2, 24, 1, 1}, options).copy_(gradient);
    at::Tensor weight = at::empty({24, 1, 1, 2}, options).zero_();
    EXPECT_TRUE(agrees(libtorch_convolution_backward(op, {0, 0}, g, x, weight, false, true).weight, wanted)) << layout;
    weight.set_requires_grad(true);
    const at::AutoGradMode on(true);
    libtorch_convolution(op, {0, 0}, x, weight, {}).backward(g);
    EXPECT_TRUE(agrees(weight.grad(), wanted)) << layout << ", by autograd";
  }
}

TEST_F(LibtorchConvolution, MayComputeAllButStridedOneByOneOfFewChannels) {
  const Convolution strided{.stride = 2};
  EXPECT_FALSE(libtorch_may_compute(strided, 15, {0, 0}));
  EXPECT_FALSE(libtorch_may_compute({.stride = Size2d(1, 3)}, 1, {0, 0}));
  EXPECT_FALSE(libtorch_may_compute({.stride = 2, .groups = 4}, 16, {0, 0}));
  EXPECT_TRUE(libtorch_may_compute(strided, 16, {0, 0}));
  EXPECT_TRUE(libtorch_may_compute(strided, 4, {1, 1}));
  EXPECT_TRUE(libtorch_may_compute({}, 4, {0, 0}));
  EXPECT_TRUE(libtorch_may_compute({.kernel = 3, .stride = 2}, 4, {0, 0}));
}

}  // namespace
}  // namespace trainyard::nn::libtorch_convolution_test
