// The loss scale of a training with 16-bit gradients: how it begins, and by whose rule it moves.
//
//   options.loss_scale = optim::LossScalerOptions{.automatic = true, .rule = optim::LossScaleRule::kTorch};
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trainyard/core/base/export.h"

namespace trainyard::optim {
struct LossScaleSteps;  // optim/scaling/loss_scale_rule.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// The framework whose automatic scale is used. All of them skip a step with an infinite gradient; Paddle itself would
// set its gradients to zero and let momentum and weight decay change the weights.
enum class LossScaleRule {
  // tf_cnn_benchmarks: halved by each bad step, doubled by the clean step after 1,000 others. Starts at 128.
  kTensorFlow,
  // torch.amp.GradScaler: halved by each bad step, doubled by 2,000 clean ones in a row. Starts at 2^16.
  kTorch,
  // paddle.static.amp: times 0.8 by 2 bad steps in a row, but not below 1; doubled by 1,000 clean ones in a row. Starts
  // at 2^15.
  kPaddle,
};
// Returns the rule called "tensorflow", "torch" or "paddle". Throws kInvalidArgument for another name.
[[nodiscard]] LossScaleRule loss_scale_rule_from_name(std::string_view name);

struct LossScalerOptions {
  std::optional<double> scale{};  // to begin with; unset: the rule's
  bool automatic = false;         // true: changes by the rule; false: constant, and infinite gradients are not detected
  LossScaleRule rule = LossScaleRule::kTensorFlow;
  // Unset: the rule's numbers. raise_after of kTensorFlow counts the clean steps before the one that raises the scale,
  // as --fp16_inc_loss_scale_every_n does.
  std::optional<int64_t> raise_after{}, lower_after{};
  std::optional<double> raise_factor{}, lower_factor{};
  // How many skipped steps in a row with a scale of at most 1 end a training: its gradients overflow without scaling.
  // 0: never.
  int64_t most_skips_at_floor = 100;

  void validate() const;  // throws kInvalidArgument
  double first_scale() const;
  LossScaleSteps steps() const;
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
