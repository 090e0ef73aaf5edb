// Loss scaling for 16-bit gradients (Micikevicius et al., "Mixed precision training", 2018, section 3.2): the loss is
// multiplied by a scale, and the optimizer divides the gradients by it. All on the device, nothing waits for it:
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
  // [] double: steps without overflow since the scale last moved.
  at::Tensor clean_steps() const;
  // [] double: skipped steps in a row up to the last one, each under a scale of at most 1.
  at::Tensor skips_at_floor() const;
  // gradients: [total] float or double, total a multiple of 16, of the scaled loss, reduced. Writes the inverse of the
  // scale and found_inf into `state`, then moves on to the next step's scale.
  void end_step(const at::Tensor& gradients, StepState& state);

  // Saves "scale", "clean_steps", "bad_steps" and "skips_at_floor". Reads them back, which waits for the device. A
  // state without the last two begins them at 0.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  LossScalerOptions options_;
  LossScaleSteps steps_;
  at::Tensor state_;                       // [4] double: a LossScale
  const DeviceKernels* device_ = nullptr;  // null on the CPU
  at::Tensor found_;                       // [1] int32 on a device where the scale is automatic; else undefined
};

}  // namespace trainyard::optim
