// The executor for NVIDIA GPUs: fused units of the graph (nn/fusion.h) under autograd, in channels_last. Convolutions
// are cuDNN's and matrix products cuBLAS's, through ATen; batch norms with what follows them, bias and activation,
// sums, max pooling, masks are kernels of our own (docs/design/cuda.md). float, or half and bfloat16 with fp32 master
// weights, statistics and sums. Registered as "cuda".
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "trainyard/nn/cuda/unit_layer.h"
#include "trainyard/nn/cuda/weights.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn {

class CudaExecutor : public Executor {
 public:
  // Throws kUnsupported for a dtype other than float, half and bfloat16, or a device that is not a GPU.
  CudaExecutor(const Graph& graph, const BuildContext& context);

  // Enqueues work on the calling thread's current stream. While that is captured, the step of `random` is not read: the
  // counter for drawing masks is incremented at each replay, from the last forward before the capture.
  core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) override;

 private:
  // A node's output: twice where its unit gives two, for the first unit that reads it and for all others.
  using Value = std::array<at::Tensor, 2>;
  struct Read {
    int node;
    bool first;
  };
  struct Layer {
    std::unique_ptr<cuda::UnitLayer> layer;
    std::vector<int> nodes;      // of the unit
    std::vector<Read> inputs;    // in order
    std::vector<int> last_uses;  // inputs that are not read after this unit
    bool shared = false;         // several units read its output
  };
  void make_layers();
  void begin(const StepRandom& random);
  Value run_layer(Layer& layer, std::vector<Value>& values, const StepRandom& random);
  static Value run_unit(Layer& layer, std::span<const at::Tensor> inputs, const StepRandom& random);

  std::vector<std::unique_ptr<BoundLayer>> plain_;  // by node id
  cuda::Weights weights_;
  cuda::LayerContext layer_context_;
  std::vector<Layer> layers_;
};

}  // namespace trainyard::nn
