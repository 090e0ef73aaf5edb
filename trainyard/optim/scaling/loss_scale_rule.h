// The rule of an automatic loss scale, for the CPU and for kernels: one state machine for TensorFlow's, PyTorch's and
// Paddle's rules, which differ in their numbers (loss_scaler.h).
//
// After a step with an infinite gradient (or NaN), which is skipped:
//   clean_steps = 0, bad_steps += 1; with the lower_after-th bad step in a row: scale = max(scale * lower_factor,
//   floor), bad_steps = 0
// After any other step:
//   bad_steps = 0, clean_steps += 1; with the raise_after-th clean step in a row: scale *= raise_factor, clean_steps =
//   0
//
// A scale is a 32-bit float in all three systems, and so is each product here. It never becomes infinite (PyTorch and
// Paddle keep it then, too), nor less than the smallest normal float.
#pragma once

#include <cfloat>
#include <cstdint>

#include "trainyard/core/base/host_device.h"

namespace trainyard::optim {

// The numbers of a rule.
struct LossScaleSteps {
  double raise_factor = 2, lower_factor = 0.5;
  int64_t raise_after = 1000;  // clean steps in a row
  int64_t lower_after = 1;     // bad steps in a row
  double floor = 0;            // lower bound of the scale
};

// The state. Counts are integers.
struct LossScale {
  double scale = 1;           // scale of the loss, and so of its gradients
  double clean_steps = 0;     // consecutive steps without an infinite gradient since the scale last changed
  double bad_steps = 0;       // consecutive, since the scale last changed
  double skips_at_floor = 0;  // bad steps in a row under a scale of at most kLossScaleFloor
};

// A smaller scale does not scale gradients up: an infinite gradient is then not caused by the scale.
inline constexpr double kLossScaleFloor = 1.0;

// Returns `scale` times `factor` as a float, or `scale` when the product is infinite or has lost bits.
[[nodiscard]] TRAINYARD_HOST_DEVICE inline double scaled_loss_scale(double scale, double factor) {
  const double product = static_cast<double>(static_cast<float>(scale * factor));
  return product >= static_cast<double>(FLT_MIN) && product <= static_cast<double>(FLT_MAX) ? product : scale;
}

// Returns the loss scale after a step. `found_inf` says that one of its gradients was not finite.
[[nodiscard]] TRAINYARD_HOST_DEVICE inline LossScale next_loss_scale(LossScale now, bool found_inf,
                                                                     const LossScaleSteps& rule) {
  if (!found_inf) {
    now.bad_steps = 0;
    now.skips_at_floor = 0;
    now.clean_steps += 1;
    if (now.clean_steps < static_cast<double>(rule.raise_after)) return now;
    now.clean_steps = 0;
    now.scale = scaled_loss_scale(now.scale, rule.raise_factor);
    return now;
  }
  now.clean_steps = 0;
  now.skips_at_floor = now.scale <= kLossScaleFloor ? now.skips_at_floor + 1 : 0;
  now.bad_steps += 1;
  if (now.bad_steps < static_cast<double>(rule.lower_after)) return now;
  now.bad_steps = 0;
  now.scale = scaled_loss_scale(now.scale, rule.lower_factor);
  if (now.scale < rule.floor) now.scale = rule.floor;
  return now;
}

}  // namespace trainyard::optim
