#include "trainyard/recipes/tf_cnn/options.h"

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::recipes {

std::string_view run_mode_name(RunMode mode) {
  switch (mode) {
    case RunMode::kTraining:
      return "training";
    case RunMode::kEvaluation:
      return "evaluation";
    case RunMode::kTrainingAndEvaluation:
      return "training + evaluation";
    case RunMode::kForwardOnly:
      return "forward only";
  }
  return "training";
}

void TfCnnOptions::validate() const {
  const auto require = [](bool good, const char* problem, const std::string& expected, int64_t actual) {
    if (good) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = problem, .expected = expected, .actual = std::to_string(actual)});
  };
  require(device.replicas >= 1, "replicas is out of range", "at least 1", device.replicas);
  require(micro_steps >= 1, "micro_steps is out of range", "at least 1", micro_steps);
  require(batch_size >= 0, "batch_size is out of range", "0 or more", batch_size);
  require(eval_batch_size >= 0, "eval_batch_size is out of range", "0 or more", eval_batch_size);
  require(display.display_every >= 1, "display_every is out of range", "at least 1", display.display_every);
  if (mode == RunMode::kEvaluation && weights.empty() == saving.train_dir.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "an evaluation needs to know what it evaluates",
                                                          .expected = "either saving.train_dir or weights",
                                                          .actual = weights.empty() ? "none of them" : "both"});
  }
  const bool pauses = steps.eval_every_n_steps.value_or(0) != 0 || steps.eval_every_n_epochs.value_or(0) != 0 ||
                      !steps.eval_at_steps.empty() || !steps.eval_at_epochs.empty();
  if (pauses != (mode == RunMode::kTrainingAndEvaluation)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the mode does not fit the steps that are evaluated",
                       .expected = pauses ? "mode kTrainingAndEvaluation" : "another mode, or steps.eval_*",
                       .actual = fmt::format("mode {}", run_mode_name(mode))});
  }
}

}  // namespace trainyard::recipes
