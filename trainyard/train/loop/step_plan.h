// Computes how many steps a run has, from batches or epochs, with its warm-up, its evaluations and the remaining steps
// of a resumed run. The rules are tf_cnn_benchmarks'.
//
//   StepPlan plan = make_step_plan({.num_epochs = 2, .global_batch_size = 64, .train_examples = 50000});
//   plan.num_batches  // 1563: the last batch wraps around
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace trainyard::train {

// The requested length of a run. At most one of each pair (batches, epochs) is set; when both are unset, or 0, it is
// 100 batches.
struct StepPlanOptions {
  std::optional<int64_t> num_batches{};
  std::optional<double> num_epochs{};
  std::optional<int64_t> num_eval_batches{};  // this pair unset: the same as in training
  std::optional<double> num_eval_epochs{};
  std::optional<int64_t> num_warmup_batches{};  // unset: max(10, 5 * autotune_threshold^2)
  std::optional<int64_t> autotune_threshold{};  // unset, or 0: 1
  int64_t batch_group_size = 1;                 // the warm-up is rounded up to a multiple of it

  // Evaluation during training: at most one of these.
  std::optional<int64_t> eval_every_n_steps{};
  std::optional<double> eval_every_n_epochs{};
  std::vector<int64_t> eval_at_steps{};
  std::vector<double> eval_at_epochs{};

  // Images a step, over all devices and workers.
  int64_t global_batch_size = 0;
  int64_t global_eval_batch_size = 0;  // 0: global_batch_size
  int64_t train_examples = 0;          // images of one epoch
  int64_t eval_examples = 0;           // 0: train_examples

  void validate() const;  // throws kInvalidArgument
};

struct StepPlan {
  int64_t num_batches = 0;  // batches after the warm-up
  double num_epochs = 0;    // the same in epochs
  int64_t num_eval_batches = 0;
  double num_eval_epochs = 0;
  int64_t num_warmup_batches = 0;
  bool warmup_was_rounded = false;  // the warm-up was rounded up to a multiple of batch_group_size

  std::optional<int64_t> eval_every_n_steps{};
  std::set<int64_t> eval_steps{};

  // Returns true when training pauses for an evaluation after `local_step` of `end_local_step` steps, counted from the
  // end of the warm-up.
  [[nodiscard]] bool evaluate_after(int64_t local_step, int64_t end_local_step) const;
};

// Validates the options and makes the plan. A number of epochs is ceil(floor(epochs * examples) / batch) steps.
StepPlan make_step_plan(const StepPlanOptions& options);

struct BatchesAndEpochs {
  int64_t batches = 0;
  double epochs = 0;
};
// Throws kInvalidArgument with the text of tf_cnn_benchmarks when both are given (and not 0).
BatchesAndEpochs batches_and_epochs(std::optional<int64_t> num_batches, std::optional<double> num_epochs,
                                    int64_t global_batch_size, int64_t examples);

// Returns the number of steps batches after the warm-up, at least 0, of a run that begins at `initial_global_step`.
// num_batches includes the steps of earlier runs. `global_steps_per_step` is the increment of the global step per local
// step: the number of workers that share it, else 1.
[[nodiscard]] int64_t end_local_step(int64_t num_batches, int64_t initial_global_step,
                                     int64_t global_steps_per_step = 1);

}  // namespace trainyard::train
