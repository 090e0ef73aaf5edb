// Computes the constants of batch norms in inference, which multiply and add once per channel.
#pragma once

#include <vector>

#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::cpu {

// The constants of y = x * factor + shift, from the running statistics, in double:
//   factor = weight / sqrt(running_var + epsilon), shift = bias - running_mean * factor
struct NormConstants {
  std::vector<double> factor, shift;  // by channel
};

// Returns the constants of `node`, a BatchNorm whose parameters and buffers the context's set holds.
NormConstants norm_constants(const Node& node, const BuildContext& context);

}  // namespace trainyard::nn::cpu
