// An executor with variables of its own, and how far what two of them compute is apart.
#pragma once

#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

// Replicas of one graph have the same values, whatever their executor and dtype: in double those that a float set
// holds.
struct Replica {
  Replica(const std::string& name, const Graph& graph, at::ScalarType dtype, const KernelOptions& kernels = {})
      : set({.dtype = dtype == at::kDouble ? at::kDouble : at::kFloat}), sink(set) {
    executor = make_executor(name, graph, {.dtype = dtype, .kernels = kernels, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(3);
    if (dtype == at::kDouble) set.values().copy_(set.values().to(at::kFloat));
  }
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
};

// Returns |a - b| / |b|, in double.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

}  // namespace trainyard::nn
