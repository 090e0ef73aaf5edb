// The loss of a training: what a run is asked for, and its flags.
#pragma once

#include <optional>
#include <string>

#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {

struct LossOptions {
  std::string loss_type_to_report = "total_loss";  // in lines and summaries; "base_loss": without the weight decay
  std::string class_weights = "none";  // "balanced": each class has the same weight in the loss (data/sample_labels.h)
  double label_smoothing = 0;          // part of the target that is spread evenly over all classes
  // "bce": binary cross-entropy, where each class is a question of its own; evaluations report softmax cross-entropy.
  std::string loss = "softmax";
  std::optional<double> bce_target_threshold{};  // targets above it are 1, all others 0
  bool bce_sum = false;                          // sum over classes instead of the mean
};

// Makes the flags, for core::flags_of().
[[nodiscard]] core::OptionFlags<LossOptions> loss_flags();

}  // namespace trainyard::frontends
