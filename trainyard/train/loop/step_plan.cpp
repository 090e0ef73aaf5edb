#include "trainyard/train/loop/step_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {
namespace {

constexpr int64_t kDefaultBatches = 100;
constexpr double kStepLimit = 9e15;              // up to here a double counts single steps
constexpr int64_t kMostEvaluations = 1'000'000;  // by epochs, whose steps are listed

void require(bool holds, std::string problem) {
  if (!holds) throw core::Error(core::ErrorCode::kInvalidArgument, std::move(problem));
}

// The step after which `epochs` epochs have been seen, part of an example not counted.
int64_t step_of_epoch(double epochs, int64_t global_batch_size, int64_t examples) {
  const double seen = epochs * static_cast<double>(examples) + static_cast<double>(global_batch_size) - 1;
  require(seen < kStepLimit, fmt::format("{} epochs of {} examples are too many", epochs, examples));
  return static_cast<int64_t>(seen) / global_batch_size;
}

void plan_evaluations(const StepPlanOptions& options, StepPlan& plan) {
  plan.eval_every_n_steps = options.eval_every_n_steps;
  plan.eval_steps.insert(options.eval_at_steps.begin(), options.eval_at_steps.end());
  for (const double epoch : options.eval_at_epochs) {
    plan.eval_steps.insert(step_of_epoch(epoch, options.global_batch_size, options.train_examples));
  }
  const double period = options.eval_every_n_epochs.value_or(0);
  if (period == 0) return;
  if (period * static_cast<double>(options.train_examples) <= static_cast<double>(options.global_batch_size)) {
    plan.eval_every_n_steps = 1;  // every step reaches the next multiple
    return;
  }
  require(plan.num_epochs / period < kMostEvaluations,
          fmt::format("{} epochs with an evaluation every {} are more than {} evaluations", plan.num_epochs, period,
                      kMostEvaluations));
  for (int64_t i = 1; static_cast<double>(i) * period < plan.num_epochs; ++i) {
    plan.eval_steps.insert(
        step_of_epoch(static_cast<double>(i) * period, options.global_batch_size, options.train_examples));
  }
}

}  // namespace

void StepPlanOptions::validate() const {
  require(global_batch_size > 0, fmt::format("batch size must be positive, not {}", global_batch_size));
  require(global_eval_batch_size >= 0,
          fmt::format("batch size of evaluation must not be negative, as {} is", global_eval_batch_size));
  require(train_examples > 0, fmt::format("an epoch must have examples, not {}", train_examples));
  require(eval_examples >= 0, fmt::format("examples must not be negative, as {} is", eval_examples));
  require(num_warmup_batches.value_or(0) >= 0,
          fmt::format("num_warmup_batches must not be negative, as {} is", num_warmup_batches.value_or(0)));
  require(autotune_threshold.value_or(0) >= 0,
          fmt::format("autotune_threshold must not be negative, as {} is", autotune_threshold.value_or(0)));
  require(autotune_threshold.value_or(0) < 1'000'000,
          fmt::format("autotune_threshold {} is too large", autotune_threshold.value_or(0)));
  require(batch_group_size > 0, fmt::format("batch_group_size must be positive, not {}", batch_group_size));
  require(eval_every_n_steps.value_or(1) > 0,
          fmt::format("steps between evaluations must be positive, not {}", eval_every_n_steps.value_or(1)));
  require(eval_every_n_epochs.value_or(0) >= 0,
          fmt::format("epochs between evaluations must be positive, not {}", eval_every_n_epochs.value_or(0)));
  for (const double epoch : eval_at_epochs) {
    require(epoch >= 0, fmt::format("an epoch of evaluation must not be negative, as {} is", epoch));
  }
}

BatchesAndEpochs batches_and_epochs(std::optional<int64_t> num_batches, std::optional<double> num_epochs,
                                    int64_t global_batch_size, int64_t examples) {
  const int64_t asked_batches = num_batches.value_or(0);
  const double asked_epochs = num_epochs.value_or(0);
  require(asked_batches == 0 || asked_epochs == 0, "At most one of --num_batches and --num_epochs may be specified.");
  require(asked_batches >= 0, fmt::format("num_batches must not be negative, as {} is", asked_batches));
  require(asked_epochs >= 0, fmt::format("num_epochs must not be negative, as {} is", asked_epochs));
  int64_t batches = asked_batches == 0 ? kDefaultBatches : asked_batches;
  if (asked_epochs != 0) batches = step_of_epoch(asked_epochs, global_batch_size, examples);
  return {batches,
          static_cast<double>(batches) * static_cast<double>(global_batch_size) / static_cast<double>(examples)};
}

StepPlan make_step_plan(const StepPlanOptions& options) {
  options.validate();
  StepPlan plan;
  const BatchesAndEpochs training =
      batches_and_epochs(options.num_batches, options.num_epochs, options.global_batch_size, options.train_examples);
  plan.num_batches = training.batches;
  plan.num_epochs = training.epochs;

  const bool own_evaluation = options.num_eval_batches || options.num_eval_epochs;
  const BatchesAndEpochs evaluation = batches_and_epochs(
      own_evaluation ? options.num_eval_batches : options.num_batches,
      own_evaluation ? options.num_eval_epochs : options.num_epochs,
      options.global_eval_batch_size == 0 ? options.global_batch_size : options.global_eval_batch_size,
      options.eval_examples == 0 ? options.train_examples : options.eval_examples);
  plan.num_eval_batches = evaluation.batches;
  plan.num_eval_epochs = evaluation.epochs;

  const int64_t asked_threshold = options.autotune_threshold.value_or(0);
  const int64_t threshold = asked_threshold == 0 ? 1 : asked_threshold;
  const int64_t warmup = options.num_warmup_batches.value_or(std::max<int64_t>(10, 5 * threshold * threshold));
  const int64_t groups = (warmup + options.batch_group_size - 1) / options.batch_group_size;
  plan.num_warmup_batches = groups * options.batch_group_size;
  plan.warmup_was_rounded = plan.num_warmup_batches != warmup;

  plan_evaluations(options, plan);
  return plan;
}

bool StepPlan::evaluate_after(int64_t local_step, int64_t end_local_step) const {
  if (local_step <= 0 || local_step >= end_local_step) return false;
  if (eval_every_n_steps) return local_step % *eval_every_n_steps == 0;
  return eval_steps.contains(local_step);
}

int64_t end_local_step(int64_t num_batches, int64_t initial_global_step, int64_t global_steps_per_step) {
  require(global_steps_per_step > 0, fmt::format("{} global steps a step", global_steps_per_step));
  return std::max<int64_t>(0, num_batches - initial_global_step / global_steps_per_step);
}

}  // namespace trainyard::train
