// The kernels of a device for what the CPU computes with the loops of this folder: updates of the parameters, the check
// for infinite gradients, the loss scale, sums. A kind of device registers them when its objects are loaded:
//
//   const core::Registration<std::shared_ptr<const DeviceKernels>> kCuda(all_device_kernels(), "cuda",
//                                                                        std::make_shared<CudaKernels>());
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/registry.h"
#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {

struct LossScaleSteps;

// One step of an optimizer over a whole parameter set.
struct DeviceUpdate {
  at::Tensor values;                  // [total] float or double
  at::Tensor gradients;               // [total], dtype of values
  std::span<const at::Tensor> slots;  // one [total] for each slot of the formula, dtype of values
  const SegmentPartTable* parts = nullptr;
  int segments = 0;   // segments of `parts`
  at::Tensor fields;  // StepState::tensor()
  at::Tensor
      count;  // [2] float64, an UpdateCount, for formulas that count updates; incremented unless the step is skipped
  double decay = 0;              // weight decay in the gradient, for the parts that decay
  double update_decay = 0;       // weight decay in the update itself, for the same parts
  double clip = 0;               // infinity: none
  bool adapt_undecayed = false;  // the ratios of formulas that are scaled by norms are 1 for parts that do not decay
};

// All tensors are on the device. Every call enqueues its work on the calling thread's current stream of the current
// device, and throws kInternal when that fails. Any thread.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Computes flat_update() of optim/optimizers/flat_update.h.
  virtual void flat_update(const DeviceUpdate& update, const AnyFormula& formula) const = 0;

  // Returns the sum of w^2 over all parts that decay: [] float64. values: [total] float or double.
  virtual at::Tensor sum_of_decayed_squares(const at::Tensor& values, const SegmentPartTable& parts) const = 0;

  // Writes `values` to the first elements of fields [>= values.size()] float64. At most 8 values; they are arguments of
  // the launch, so the caller may change them at once.
  virtual void write_fields(const at::Tensor& fields, std::span<const double> values) const = 0;

  // Sets found [1] int32 to 1 where an element of `gradients` is infinite or not a number, else to 0. gradients:
  // [total] float or double, total a multiple of 16.
  virtual void find_non_finite(const at::Tensor& gradients, const at::Tensor& found) const = 0;

  // Writes the inverse of the scale and found_inf to `fields` (StepState::tensor()) and updates scale [4] float64, a
  // LossScale, by the rule (scaling/loss_scale_rule.h). With `found` undefined the scale is fixed, and gradients were
  // not checked.
  virtual void apply_loss_scale(const at::Tensor& scale, const at::Tensor& found, const LossScaleSteps& rule,
                                const at::Tensor& fields) const = 0;
};

// Returns the kernels by the device's kind in LibTorch: "cuda" where the CUDA engine is built in.
core::Registry<std::shared_ptr<const DeviceKernels>>& all_device_kernels();

// Returns null for the CPU, which needs none. They live as long as the program. Throws kUnsupported for a device whose
// kind has not registered any.
const DeviceKernels* device_kernels(at::Device device);

}  // namespace trainyard::optim
