// How an automatic loss scale moves (tf_cnn_benchmarks' --fp16_enable_auto_loss_scale), for the CPU and kernels alike.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/host_device.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

struct LossScale {
  double scale = 1;        // of the loss, and so of its gradients
  double clean_steps = 0;  // without an infinite gradient since the scale last moved; a whole number
};

// Returns the scale after a step. `found_inf` says that one of its gradients was not finite: that step is skipped and
// the scale halved. After more than `raise_after` clean steps the scale is doubled.
TRAINYARD_HOST_DEVICE inline LossScale next_loss_scale(LossScale now, bool found_inf, int64_t raise_after) {
  if (found_inf) return {now.scale / 2, 0};
  if (now.clean_steps < static_cast<double>(raise_after)) return {now.scale, now.clean_steps + 1};
  return {now.scale * 2, 0};
}

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
