// What the tests of the conformance suite share: inputs, and an executor with what it needs around it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::conformance {

constexpr StepRandom kRandom{.seed = 5, .step = 2, .micro_step = 0, .first_sample = 40};

// Returns the graph that `build` makes of an image, its output flattened.
Graph graph_of(const LayerCase& layer, const LayerCase::Build& build);
inline Graph graph_of(const LayerCase& layer) {
  return graph_of(layer, layer.build);
}

// Returns doubles in (-range, range) that are all different, at least 2 * range / count apart, shuffled, exact in
// float.
at::Tensor separated(const Shape& shape, double range, std::string_view name);

at::Tensor images_of(const LayerCase& layer, int64_t batch);

// An executor with a set and a sink of its own, in one dtype.
struct Rig {
  Rig(const std::string& executor_name, const Graph& graph, Mode mode, at::ScalarType dtype,
      at::Device device = at::kCPU, bool frozen = false, const KernelOptions& kernels = {});

  struct Result {
    at::Tensor output;
    std::map<std::string, at::Tensor> gradients;  // by parameter name, and "input"
  };
  // Forward and, with the output's cotangent fixed by its shape, backward.
  Result run(const at::Tensor& images);
  static at::Tensor cotangent(const at::Tensor& output);

  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
};

// Returns the derivative of `loss` with respect to element i of `variable`, doubles that are contiguous and that it
// reads: a central difference.
double central_difference(const at::Tensor& variable, int64_t i, const std::function<double()>& loss);

// Returns ||a - b|| / ||b||; b's norm is not taken smaller than 1e-3 a value, for gradients that are zero by nature.
double relative_error(const at::Tensor& a, const at::Tensor& b);

}  // namespace trainyard::nn::conformance
