// What every executor must do with every layer. A layer joins with one line in conformance_layers.cpp; an executor
// with one line in a test of its own:
//
//   INSTANTIATE_TEST_SUITE_P(Reference, LayerConformance, ::testing::ValuesIn(conformance_cases({"reference"})),
//                            conformance_name);
//
// The chain of trust: loops by definition (naive_layers.h) -> the reference in double, whose gradients are held to
// central differences -> each executor in float and bf16. Errors are norms, ||a - b|| / ||b||, and the bounds are
//   double against the loops     1e-12 * sqrt(terms)
//   gradients against differences 1e-6
//   float against double         2e-6 * sqrt(terms)
//   bf16 against double          2^-7 * sqrt(layers), its sums being kept in float
// where `terms` is the length of the longest sum in the graph, over the batch included.
//
// One element that is not finite, of the input or of a parameter, makes the same elements of outputs not finite, NaN or
// the same infinity, as in the reference, and the same elements of gradients not finite. NaN may be beyond that
//   in a plane that a convolution's spoiled weight reaches: PyTorch's own kernels differ in whether zeros of a padding
//     meet the weight (0 * NaN = NaN) or take no part
//   instead of an infinity, where a norm's infinite factor is folded
//   in the tile of a Winograd convolution
// and a shifted window's attention may give infinity for NaN: 0 or a weight of e^-100, times infinity.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn {

struct LayerCase {
  using Build = std::function<GraphBuilder::Value(GraphBuilder&, GraphBuilder::Value)>;

  std::string name;  // CamelCase
  Shape image;       // [C, H, W]
  Build build;
  double range = 2;  // inputs lie in (-range, range), all different, none at zero
  // False for layers in a row whose gradients nearly cancel: 16 bits cannot say anything about those.
  bool sixteen_bits = true;
  // The same layer with the zeros of its padding as numbers of the image; none where it pads nothing.
  Build padded = {};
};

// Every layer with odd shapes, paddings, strides, groups: the list that a new layer joins.
std::vector<LayerCase> layer_cases();

struct ExecutorUnderTest {
  std::string name;
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kBFloat16};
  at::Device device = at::kCPU;
  KernelOptions kernels{};
};

struct ConformanceCase {
  ExecutorUnderTest executor;
  LayerCase layer;
};
std::ostream& operator<<(std::ostream& out, const ConformanceCase& conformance_case);
std::vector<ConformanceCase> conformance_cases(const ExecutorUnderTest& executor);
std::string conformance_name(const ::testing::TestParamInfo<ConformanceCase>& info);

class LayerConformance : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  void SetUp() override {
    if (GetParam().executor.device.is_cuda() && accelerator_count("cuda") == 0) GTEST_SKIP() << core::skip::kNeedsGpu;
  }
};

}  // namespace trainyard::nn
