// Keeps convolutions from hiding NaN, and from spreading it where PyTorch does not.
//
// oneDNN's ReLU as a post-operation is max(x, 0) that makes 0 of NaN. A sum of products is NaN only where an input, a
// weight or the bias is not finite, or where sums overflow. Neither is possible while
//   largest input * largest sum of an output's |weights| + largest |bias| + largest residual
// is far below the largest float. The sum of weights is known when they are packed, and steps hand on what bounds their
// outputs (Run::bounds). A bound gains one or two digits in a convolution, and has room for 29. Where it is no longer
// small enough the guard looks at the map itself: at a handful of maps in a deep network. Where even that does not do,
// the convolution runs without its activation, which a pass of our own makes after it.
//
// Three more things want a finite input: kernels that mix groups, else each group is convolved alone
// (group_by_group.h); kernels that multiply pairs, else an exact one runs (exact_convolution.h); and pad lanes of the
// output, whose weights are zero, and infinity times zero is NaN: else they are cleared.
#pragma once

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/plan/plan_builder.h"

namespace trainyard::nn::cpu {

// Returns what bounds the output of an activation beside its input: |f(x)| <= max(|x|, least_bound).
float least_bound(UnitActivation activation);

// Returns the largest absolute value, NaN where one is NaN. count: of elements.
float largest_of(const void* values, int64_t count, DataType dtype);

class NanGuard {
 public:
  struct Operands {
    ValueId source = -1;
    const void* source_data = nullptr;
    ValueId residual = -1;  // that the kernel adds, or none
    const void* residual_data = nullptr;
  };

  NanGuard() = default;
  NanGuard(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, const ConvolutionKernel& kernel);

  // Takes the values that are packed: weight plain, bias [out_channels] or null.
  void set_weights(const float* weight, const float* bias);

  // Returns whether the kernel may run in this pass. Enters what it measures in run.bounds.
  bool is_safe(Run& run, const Operands& operands) const;

  // What runs instead of an unsafe kernel and makes all but the activation, with pad lanes of zeros.
  void run_without_activation(const float* weight, const float* bias, const void* source, void* output) const;

  // Returns whether the input of this pass is finite. Enters what it measures in run.bounds.
  bool is_source_finite(Run& run, ValueId source, const void* source_data) const;

  // Returns what bounds the output after `activation` (PlanStep::bound).
  float bound(const Run& run, ValueId source, ValueId residual, UnitActivation activation) const;

 private:
  bool is_harmless(const Run& run, const Operands& operands) const;
  float sum_bound(const Run& run, ValueId source, ValueId residual) const;
  void measure_source(Run& run, ValueId source, const void* source_data) const;

  ConvolutionShape shape_;
  ConvolutionKernel::Options options_;
  bool hides_nan_ = false, wants_finite_ = false;
  float row_sum_ = kUnbounded, offset_ = kUnbounded;
};

}  // namespace trainyard::nn::cpu
