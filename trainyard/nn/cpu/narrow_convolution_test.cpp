// Convolutions on maps so narrow that weights of their kernels meet no pixel (nn/execution/unreached_weights.h): every
// kernel of the CPU plan, and every executor, against the definition in double. The memory that kernels write to holds
// NaN before.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/convolution/grouped/grouped_convolution.h"
#include "trainyard/nn/cpu/convolution/onednn/onednn_convolution.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/testing/conformance_rig.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::narrow_convolution_test {
namespace {

using Algorithm = ConvolutionAlgorithm;
using Direction = ConvolutionDirection;
using Kernel = std::unique_ptr<ConvolutionKernel>;

constexpr size_t kShapes = 150;

std::vector<Problem> narrow_problems(DataType dtype) {
  std::vector<Problem> problems;
  for (ConvolutionShape shape : narrow_shapes(kShapes)) {
    shape.dtype = dtype;
    problems.emplace_back(shape);
  }
  return problems;
}

// Returns the kernels that there are for a gradient of weights, of all algorithms, and oneDNN's by itself.
std::vector<Kernel> weight_kernels(const ConvolutionShape& shape) {
  std::vector<Kernel> kernels;
  const auto add = [&](Kernel kernel) {
    if (kernel != nullptr) kernels.push_back(std::move(kernel));
  };
  for (const Algorithm algorithm :
       {Algorithm::kDirect, Algorithm::kWinograd, Algorithm::kWinograd4, Algorithm::kWinograd2, Algorithm::kPointwise,
        Algorithm::kPixelPairs, Algorithm::kAmx, Algorithm::kLibtorch}) {
    add(ConvolutionKernel::make(shape, {.direction = Direction::kBackwardWeights, .algorithm = algorithm}));
  }
  add(make_grouped_convolution(shape, {.direction = Direction::kBackwardWeights}));
  if (shape.groups == 1) add(make_onednn_convolution(shape, {.direction = Direction::kBackwardWeights}, false));
  add(make_onednn_convolution(shape, {.direction = Direction::kBackwardWeights}, true));
  return kernels;
}

TEST(NarrowConvolution, TheKernelsThatArePlannedAgreeWithTheDefinition) {
  for (const DataType dtype : kDataTypes) {
    for (const Problem& p : narrow_problems(dtype)) {
      expect_agreement(p, [](const ConvolutionShape& shape, Direction direction) {
        return ConvolutionKernel::make(shape, {.direction = direction});
      });
    }
  }
}

TEST(NarrowConvolution, EveryKernelsWeightGradientAgreesWithTheDefinition) {
  for (const DataType dtype : kDataTypes) {
    for (const Problem& p : narrow_problems(dtype)) {
      for (const Kernel& kernel : weight_kernels(p.shape)) {
        SCOPED_TRACE(::testing::Message() << kernel->implementation() << ": " << p.shape);
        // LibTorch's gradient is rounded to 16 bits, Winograd's in 16 bits loses as much.
        const double allowed = dtype == DataType::kFloat ? 1e-5 : 2e-2;
        const std::vector<float> gradient = Runner(*kernel).backward_weights(p).weights;
        double difference = 0, norm = 0;
        for (size_t i = 0; i < gradient.size(); ++i) {
          difference += std::pow(gradient[i] - p.weights_gradient[i], 2);
          norm += std::pow(p.weights_gradient[i], 2);
        }
        ASSERT_LE(std::sqrt(difference), allowed * std::max(std::sqrt(norm), 0.1));
      }
    }
  }
}

// Whatever oneDNN leaves there: its fault needs AVX512_BF16, what is done about it does not.
TEST(NarrowConvolution, WeightsThatMeetNoPixelBecomeZeroByDefinition) {
  int kernels = 0, places = 0;
  for (const DataType dtype : kDataTypes) {
    for (ConvolutionShape shape : narrow_shapes(kShapes)) {
      shape.dtype = dtype;
      const std::vector<int64_t> unreached = unreached_weights(shape).places();
      const auto window = static_cast<size_t>(shape.kernel_height * shape.kernel_width);
      for (const bool whole : {false, true}) {
        if (!whole && shape.groups != 1) continue;
        const Kernel kernel = make_onednn_convolution(shape, {.direction = Direction::kBackwardWeights}, whole);
        if (kernel == nullptr) continue;
        ++kernels;
        const at::Tensor untouched = bytes(kernel->weights_bytes());  // NaN
        const int64_t windows = shape.out_channels * (shape.in_channels / shape.groups);
        std::vector<float> plain(static_cast<size_t>(windows) * window, 1);
        kernel->unpack(untouched.const_data_ptr(), plain.data());
        for (size_t i = 0; i < plain.size(); ++i) {
          const bool zero = std::binary_search(unreached.begin(), unreached.end(), static_cast<int64_t>(i % window));
          places += zero ? 1 : 0;
          ASSERT_TRUE(zero ? plain[i] == 0 : std::isnan(plain[i])) << shape << " at " << i;
        }
      }
    }
  }
  EXPECT_GT(kernels, 30);  // with AVX2 of float alone
  EXPECT_GT(places, 1000);
}

// Contiguous [N, C, H, W] in double of a map.
at::Tensor plain_of(const TestMap& map) {
  const MapShape& s = map.shape();
  at::Tensor plain = at::empty({s.batch, s.channels, s.height, s.width}, at::kDouble);
  map.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    plain.data_ptr<double>()[((n * s.channels + c) * s.height + y) * s.width + x] = map.at(n, c, y, x);
  });
  return plain;
}

TEST(NarrowConvolution, EveryExecutorAgreesWithTheDefinition) {
  for (const DataType dtype : kDataTypes) {
    const at::ScalarType type = dtype == DataType::kFloat ? at::kFloat : at::kBFloat16;
    const double allowed = dtype == DataType::kFloat ? 1e-5 : 2e-2;
    for (const Problem& p : narrow_problems(dtype)) {
      const ConvolutionShape& s = p.shape;
      GraphBuilder b({.image = {s.in_channels, s.in_height, s.in_width}, .name = "narrow"});
      const Graph graph = b.build(
          b.flatten("flat", b.convolution("layer", b.input(),
                                          {.out_channels = s.out_channels,
                                           .kernel = {s.kernel_height, s.kernel_width},
                                           .stride = {s.stride_height, s.stride_width},
                                           .padding = {Padding::Kind::kExplicit, s.top, std::max<int64_t>(s.bottom, 0),
                                                       s.left, std::max<int64_t>(s.right, 0)},
                                           .dilation = {s.dilation_height, s.dilation_width},
                                           .groups = s.groups})));
      for (const char* name : {"reference", "cpu"}) {
        SCOPED_TRACE(::testing::Message() << name << ", " << s);
        conformance::Rig rig(name, graph, Mode::kTraining, type);
        const ParameterId weight = *rig.set.find("layer.weight");
        rig.set.value(weight).copy_(at::tensor(p.weights).view_as(rig.set.value(weight)));
        rig.set.values_changed();
        rig.set.gradients().fill_(std::nan(""));
        rig.sink.begin(0, 1);
        at::Tensor x = plain_of(p.source).to(type).requires_grad_(true);
        const at::Tensor output = rig.executor->forward(x, conformance::kRandom);
        output.backward(plain_of(p.output_gradient).flatten(1).to(output.options()));
        rig.sink.finish();
        const at::Tensor wanted = at::tensor(p.weights_gradient);
        const at::Tensor difference = rig.set.gradient(weight).flatten().to(at::kDouble) - wanted;
        ASSERT_LE(difference.norm().item<double>(), allowed * std::max(wanted.norm().item<double>(), 0.1));
        const UnreachedWeights unreached = unreached_weights(s);
        for (const int64_t place : unreached.places()) {
          const at::Tensor windows = rig.set.gradient(weight).view({-1, s.kernel_height * s.kernel_width});
          ASSERT_EQ(windows.select(1, place).abs().max().item<double>(), 0) << "place " << place;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::narrow_convolution_test
