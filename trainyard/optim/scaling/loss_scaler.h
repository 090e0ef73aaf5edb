// Loss scaling for 16-bit gradients (Micikevicius et al., "Mixed precision training", 2018, section 3.2): the loss is
// multiplied by a scale, and the optimizer divides the gradients by it. All of it runs on the device, asynchronously:
//
//   (loss * scaler.scale()).backward();
//   scaler.end_step(parameters.gradients(), state);     // the optimizer reads `state`, and skips if it must
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/optim/scaling/loss_scale_rule.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class DeviceKernels;

// One thread at a time.
class LossScaler : public core::Stateful {
 public:
  // Throws kInvalidArgument for bad options, kUnsupported as device_kernels() does.
  explicit LossScaler(const LossScalerOptions& options, at::Device device = at::kCPU);

  // Returns the scale of this step: [] double.
  [[nodiscard]] at::Tensor scale() const;
  // Returns the steps without overflow since the scale last changed: [] double.
  at::Tensor clean_steps() const;
  // Returns the number of the last consecutive skipped steps with a scale of at most 1: [] double.
  at::Tensor skips_at_floor() const;
  // Forgets what the costs of a step have found that an error has ended between them. Call it before each step of
  // several costs.
  void begin_step() { found_before_ = false; }
  // Takes the reduced gradients of the scaled loss, [total] float or double, total a multiple of 16. Writes the inverse
  // of the scale and found_inf into `state`, then computes the next step's scale.
  //
  // A step of several costs ends with its last one, as after GradScaler.update() of PyTorch: the others have `last`
  // false, their found_inf is their own, and the scale stays until the last one, for which one bad cost is a bad step.
  // On a device each of them counts as a step.
  void end_step(const at::Tensor& gradients, StepState& state, bool last = true);
  // Does the same for gradients in host memory that were checked elsewhere. Only an automatic scale uses `finite`.
  void end_step(bool finite, StepState& state, bool last = true);
  // Turns the step that end_step() has ended last into one that is skipped, as if these gradients had not been finite:
  // those of another process were not, which is known later. In host memory.
  void skip_ended_step(StepState& state);

  // Saves "scale", "clean_steps", "bad_steps" and "skips_at_floor". Reads them back, which waits for the device. A
  // state without the last two starts them at 0. A fixed scale that the options give stays theirs.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  LossScalerOptions options_;
  LossScaleSteps steps_;
  LossScale before_{};                     // what state_ was before end_step(), in host memory
  bool found_before_ = false;              // by an earlier cost of this step, in host memory
  bool was_last_ = true;                   // the last end_step() was that of the step's last cost
  at::Tensor state_;                       // [4] double: a LossScale
  const DeviceKernels* device_ = nullptr;  // null on the CPU
  at::Tensor found_;                       // [1] int32 on a device when the scale is automatic; else undefined
};

}  // namespace trainyard::optim
