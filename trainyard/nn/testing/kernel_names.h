// The names of the kernels that an executor runs, for tests.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn::testing {

// Notes the name of each kernel that runs, in order.
struct KernelNames : NodeObserver {
  void ran(const NodeRun& run) override { names.emplace_back(run.kernel); }
  std::vector<std::string> names;
};

// Returns the names of the kernels of a forward pass, in order.
inline std::vector<std::string> kernels_of(Executor& executor, const at::Tensor& x, const StepRandom& random = {}) {
  KernelNames kernels;
  executor.set_observer(&kernels);
  static_cast<void>(executor.forward(x, random));
  executor.set_observer(nullptr);
  return kernels.names;
}

}  // namespace trainyard::nn::testing
