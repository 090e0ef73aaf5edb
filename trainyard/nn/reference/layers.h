// The reference implementation of each operation: plain ATen under autograd, as close as possible to the formulas in
// graph/ops.h. There is one overload of run() per operation.
#pragma once

#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::reference {

// One node in one forward pass.
struct LayerCall {
  const Node& node;
  std::string_view name;                  // with the context's prefix; names random streams
  std::span<const at::Tensor> inputs;     // [N, ...] of the context's dtype
  std::span<const at::Tensor> variables;  // the node's parameters, of the set's dtype
  std::span<const at::Tensor> buffers;
  bool training = false;
  bool trains = true;        // one of the node's parameters is trainable
  bool reuse_input = false;  // the first input is not needed elsewhere: its memory may be used for the result
  SyncBatchNorm* sync_batch_norm = nullptr;  // as in BuildContext
  const StepRandom& random;

  const at::Tensor& x() const { return inputs[0]; }
  // Returns a parameter in the dtype of the activations; undefined when the node has no such parameter.
  at::Tensor variable(size_t index) const {
    return index < variables.size() ? variables[index].to(x().scalar_type()) : at::Tensor();
  }
};

at::Tensor run(const Convolution& op, const LayerCall& call);
at::Tensor run(const BatchNorm& op, const LayerCall& call);
// Does the same in training with the statistics of all replicas (call.sync_batch_norm).
at::Tensor run_synchronized(const BatchNorm& op, const LayerCall& call);
at::Tensor run(const Activation& op, const LayerCall& call);
at::Tensor run(const Pool& op, const LayerCall& call);
at::Tensor run(const GlobalAveragePool& op, const LayerCall& call);
at::Tensor run(const AdaptiveAveragePool& op, const LayerCall& call);
at::Tensor run(const Linear& op, const LayerCall& call);
at::Tensor run(const Flatten& op, const LayerCall& call);
at::Tensor run(const Add& op, const LayerCall& call);
at::Tensor run(const Multiply& op, const LayerCall& call);
at::Tensor run(const Concat& op, const LayerCall& call);
at::Tensor run(const ChannelPad& op, const LayerCall& call);
at::Tensor run(const SpatialPad& op, const LayerCall& call);
at::Tensor run(const ChannelSlice& op, const LayerCall& call);
at::Tensor run(const ChannelShuffle& op, const LayerCall& call);
at::Tensor run(const Dropout& op, const LayerCall& call);
at::Tensor run(const StochasticDepth& op, const LayerCall& call);
at::Tensor run(const LocalResponseNorm& op, const LayerCall& call);
at::Tensor run(const LayerNorm& op, const LayerCall& call);
at::Tensor run(const LayerScale& op, const LayerCall& call);
at::Tensor run(const ClassToken& op, const LayerCall& call);
at::Tensor run(const PositionEmbedding& op, const LayerCall& call);
at::Tensor run(const Attention& op, const LayerCall& call);
at::Tensor run(const PatchMerge& op, const LayerCall& call);
at::Tensor run(const TransposedConvolution& op, const LayerCall& call);
at::Tensor run(const Upsample& op, const LayerCall& call);
at::Tensor run(const L2Norm& op, const LayerCall& call);
at::Tensor run(const BoxRows& op, const LayerCall& call);

}  // namespace trainyard::nn::reference
