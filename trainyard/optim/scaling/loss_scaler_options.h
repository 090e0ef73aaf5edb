// The loss scale of a training with 16-bit gradients: how it begins, and by whose rule it moves.
//
//   options.loss_scale = optim::LossScalerOptions{.automatic = true, .rule = optim::LossScaleRule::kTorch};
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

struct LossScaleSteps;  // optim/scaling/loss_scale_rule.h

// Whose automatic scale it is. A step with an infinite gradient is skipped in all of them; Paddle itself would set its
// gradients to zero and let momentum and weight decay move the weights.
enum class LossScaleRule {
  // tf_cnn_benchmarks: halved by each bad step, doubled by the clean step behind 1,000 others. Begins with 128.
  kTensorFlow,
  // torch.amp.GradScaler: halved by each bad step, doubled by 2,000 clean ones in a row. Begins with 2^16.
  kTorch,
  // paddle.static.amp: times 0.8 by 2 bad steps in a row, but not below 1; doubled by 1,000 clean ones in a row. Begins
  // with 2^15.
  kPaddle,
};
// Returns the rule called "tensorflow", "torch" or "paddle". Throws kInvalidArgument for another name.
[[nodiscard]] LossScaleRule loss_scale_rule_from_name(std::string_view name);

struct LossScalerOptions {
  std::optional<double> scale{};  // to begin with; unset: the rule's
  bool automatic = false;         // moves by the rule; else it stays, and infinite gradients go unseen
  LossScaleRule rule = LossScaleRule::kTensorFlow;
  // The rule's numbers where they are unset. raise_after of kTensorFlow counts the clean steps before the one that
  // raises the scale, as --fp16_inc_loss_scale_every_n does.
  std::optional<int64_t> raise_after{}, lower_after{};
  std::optional<double> raise_factor{}, lower_factor{};
  // How many skipped steps in a row, each under a scale of at most 1, end a training: its gradients overflow by
  // themselves then. 0: none do.
  int64_t most_skips_at_floor = 100;

  void validate() const;  // throws kInvalidArgument
  double first_scale() const;
  LossScaleSteps steps() const;
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
