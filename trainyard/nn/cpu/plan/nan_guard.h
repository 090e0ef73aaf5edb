// Keeps convolutions from hiding NaN, and from spreading it where PyTorch does not.
//
// oneDNN's ReLU as a post-operation turns NaN into 0. A sum of products is NaN only where an input, a weight or the
// bias is not finite, or where sums overflow. Neither is possible while
//   largest input * largest sum of an output's |weights| + largest |bias| + largest residual
// is far below the largest float. The sum of weights is known when they are packed, and steps pass on bounds of their
// outputs (Run::bounds). A bound grows by one or two digits in a convolution, of 29. When it is no longer small enough,
// the guard checks the map itself: this happens for a handful of maps in a deep network. When that does not help
// either, the convolution runs without its activation, which a separate pass applies.
//
// Strassen's products, whose sums mix results, need the same, and that neither the input nor the weights are near the
// largest float, whose sums are multiplied.
//
// Three more cases need a finite input. When it is not finite:
//
//   - a kernel that mixes groups gives way to one that convolves each group alone (group_by_group.h);
//   - a kernel that multiplies pairs gives way to an exact one (exact_convolution.h);
//   - pad lanes of the output are cleared: their weights are zero, and infinity times zero is NaN.
#pragma once

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/plan/plan_builder.h"

namespace trainyard::nn::cpu {

// Returns the number for which |f(x)| <= max(|x|, least_bound) holds, where f is the activation.
float least_bound(UnitActivation activation);

// Returns a bound of |f(x)|, f being the activation, when `bound` bounds |x|; kUnbounded when `bound` is not finite.
float bound_behind(float bound, UnitActivation activation);

// Returns the largest absolute value of `count` elements, and NaN when one is NaN.
float largest_of(const void* values, int64_t count, DataType dtype);

class NanGuard {
 public:
  struct Operands {
    ValueId source = -1;
    const void* source_data = nullptr;
    ValueId residual = -1;  // the map that the kernel adds; -1: none
    const void* residual_data = nullptr;
  };

  NanGuard() = default;
  NanGuard(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, const ConvolutionKernel& kernel);

  // Sets the weights (plain) and the bias ([out_channels] or null). Called when they are packed.
  void set_weights(const float* weight, const float* bias);

  // Returns whether the kernel may run in this pass. Stores measured bounds in run.bounds.
  bool is_safe(Run& run, const Operands& operands) const;

  // Runs instead of an unsafe kernel. Computes all but the activation, and sets pad lanes to zero.
  void run_without_activation(const float* weight, const float* bias, const void* source, void* output) const;

  // Returns whether the input of this pass is finite. Stores measured bounds in run.bounds.
  bool is_source_finite(Run& run, ValueId source, const void* source_data) const;

  // Returns a bound of the output after `activation` (PlanStep::bound).
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
