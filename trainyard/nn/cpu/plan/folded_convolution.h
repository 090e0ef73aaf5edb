// Convolutions whose weights are constants, with the batch norm behind them folded into them.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::cpu {

struct FoldedConvolution {
  at::Tensor weight;        // as the parameter: float, contiguous
  std::vector<float> bias;  // [out_channels]; zeros if neither the convolution nor the norm has one
};

// Returns the weights of `convolution` times the factors of `norm`, which may be null, and the bias that goes with
// them: products in double, rounded once. The context's set holds the parameters and buffers of both.
FoldedConvolution fold_convolution(const Node& convolution, const Node* norm, const BuildContext& context);

}  // namespace trainyard::nn::cpu
