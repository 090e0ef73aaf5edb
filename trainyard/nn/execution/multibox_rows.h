// How the multibox loss (multibox_loss.h) is computed: on the CPU by loops over rows of predictions, with the backward
// by hand; elsewhere by ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/multibox_loss.h"

namespace trainyard::nn {

// A batch whose tensors fit and have been checked, all on the CPU and contiguous.
struct MultiboxRows {
  at::Tensor output;          // [N, D, 4 + C] of any float type
  at::Tensor target_offsets;  // [N, D, 4], of the type that is computed in: number_type(output)
  at::Tensor classes;         // [N, D] int64
  at::Tensor num_matched;     // [N] int64

  // Returns double for doubles, else float.
  static at::ScalarType number_type(const at::Tensor& output) {
    return output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
};

struct MultiboxSums {
  double class_loss = 0, box_loss = 0;
};

// Returns the loss. Writes into `weights`, [N, D] uint8, how often the cross entropy of each box counts in it: 0 to 2.
MultiboxSums multibox_forward(const MultiboxRows& rows, const at::Tensor& weights);
// Returns the gradient of `factor` times the loss for the output, in its type.
at::Tensor multibox_backward(const MultiboxRows& rows, const at::Tensor& weights, double factor);

// Returns the loss under autograd, for tensors that fit and have been checked, on any device.
at::Tensor multibox_of_operators(const at::Tensor& output, const at::Tensor& target_offsets, const at::Tensor& classes,
                                 const at::Tensor& num_matched, MultiboxParts* parts);

}  // namespace trainyard::nn
