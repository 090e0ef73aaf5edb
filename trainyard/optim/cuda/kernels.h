// The optimizers' CUDA kernels, on raw pointers: no LibTorch here, so that nvcc compiles them quickly. All run in order
// on `stream`, use no atomics except for a flag, and throw kInternal when a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "trainyard/optim/scaling/loss_scale_rule.h"
#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/segment_part.h"

namespace trainyard::optim::cuda {

// One step of an optimizer over a whole parameter set (optim/optimizers/flat_update.h); all on the device, float or
// double.
struct FlatUpdate {
  bool is_double = false;
  void* values = nullptr;
  const void* gradients = nullptr;
  void* slots[kMostSlots] = {};
  const SegmentPart* parts = nullptr;
  int part_count = 0;
  // Fields of a StepState.
  const double *learning_rate = nullptr, *inverse_loss_scale = nullptr, *found_inf = nullptr;
  double decay = 0, clip = 0;  // of the gradient; a clip of infinity does not clip
  double update_decay = 0;     // weight decay in the update itself
  // For formulas that count updates: the count, and memory for the formula with its derived members.
  UpdateCount* count = nullptr;
  void* derived = nullptr;
  // For formulas that are scaled by norms: memory for two sums of squares of each part [part_count][2], and for a ratio
  // of each segment [segments].
  double *sums = nullptr, *ratios = nullptr;
  int segments = 0;
  bool adapt_undecayed = false;
};

void launch_flat_update(const FlatUpdate& update, const AnyFormula& formula, cudaStream_t stream);

// Computes sums [part_count] double, the sum of squares of each part's elements; 0 for parts that do not decay.
void part_squares(bool is_double, const void* values, const SegmentPart* parts, int part_count, double* sums,
                  cudaStream_t stream);
// Sets *total to the sum of `sums` [count], in a fixed order.
void add_up(const double* sums, int count, double* total, cudaStream_t stream);

// Sets *found to 1 when one of gradients [count] is infinite or NaN, else to 0.
void find_non_finite(bool is_double, const void* gradients, int64_t count, int* found, cudaStream_t stream);

// Applies the rule of loss_scale_rule.h: writes the step's inverse scale and found_inf, and updates `scale`. With
// `found` null the scale is fixed, and gradients were not checked.
void apply_loss_scale(LossScale* scale, const int* found, const LossScaleSteps& rule, double* inverse_loss_scale,
                      double* found_inf, cudaStream_t stream);

// Sets fields[0 .. count) to values, which are arguments of the launch: no copy, nothing to wait for. count is at most
// 8.
struct StepFields {
  double value[8] = {};
};
void write_fields(double* fields, const StepFields& values, int count, cudaStream_t stream);

}  // namespace trainyard::optim::cuda
