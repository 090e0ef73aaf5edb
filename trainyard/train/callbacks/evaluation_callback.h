// Pauses training for evaluations, and evaluates at the end; prints upstream's lines, writes the monitors' "eval"
// phase, and stops the run when its goal is reached.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trainyard/train/callbacks/step_log.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/evaluator.h"
#include "trainyard/train/loop/local_steps.h"

namespace trainyard::train {

struct EvaluationCallbackOptions {
  // Evaluates the model as it is now. It may print evaluation_step_line() meanwhile.
  std::function<Evaluation()> evaluate;
  // Whether to evaluate when so many steps after the warm-up are done, 1 or more (StepPlan::evaluate_after). None: only
  // at the end. It is not asked after the last step.
  std::function<bool(int64_t steps_done)> due;
  bool at_end = true;  // of a run that was neither stopped nor failed

  std::optional<double> stop_at_top_1_accuracy;
  std::function<bool()> reached_target;  // a goal of the model's own

  int64_t warmup_steps = 0;
  bool over_all_runs = false;  // `due` is asked with the global step instead
  int64_t batch_size = 0;      // for the epoch of each row, as SummaryOptions
  int64_t examples_per_epoch = 0;
  Print print = print_to_stdout;
  std::function<void(const Evaluation&, int64_t global_step)> on_evaluation;
  std::function<double()> wall_clock;  // seconds since the Unix epoch; default: the system's clock

  void validate() const;  // throws kInvalidArgument
};

// The monitors get top_1_accuracy, top_5_accuracy, loss and examples_per_second.
class EvaluationCallback : public Callback {
 public:
  explicit EvaluationCallback(EvaluationCallbackOptions options);

  std::string name() const override { return "evaluation"; }

  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

  // The last evaluation of this run.
  const std::optional<Evaluation>& last() const { return last_; }

 private:
  // Returns false when the evaluation was stopped.
  bool evaluate(Trainer& trainer);
  // The line to print when the goal is reached, which ends the run.
  std::optional<std::string> goal_reached() const;

  EvaluationCallbackOptions options_;
  LocalSteps local_steps_;
  std::optional<Evaluation> last_;
  bool in_step_ = false;
  bool ended_ = false;
};

// Samples a second, 0 when no time has passed.
double examples_per_second(const Evaluation& evaluation);

}  // namespace trainyard::train
