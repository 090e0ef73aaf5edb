// Pauses training for evaluations, and evaluates at the end; writes the monitors' "eval" phase, and stops the run when
// its goal is reached. It prints nothing: an EvaluationListener does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/local_steps.h"
#include "trainyard/train/monitors/monitor.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

enum class EvaluationTime { kDuringTraining, kAtTheEnd };

// Hears what an EvaluationCallback does, in this order, on the trainer's thread. Each method does nothing unless it is
// overridden.
class EvaluationListener {
 public:
  virtual ~EvaluationListener() = default;
  virtual void on_begin(EvaluationTime, int64_t /*global_step*/) {}
  // The evaluation is complete. None of these two follows on_begin() where it was stopped.
  virtual void on_result(const Evaluation&, int64_t /*global_step*/) {}
  // Behind an evaluation during training: it goes on, or it ends because of `reason`.
  virtual void on_resume() {}
  virtual void on_goal(const std::string& /*reason*/) {}
  // The training has ended, in front of the last evaluation. Only where there are evaluations during training.
  virtual void on_training_end() {}
};

struct EvaluationCallbackOptions {
  // Evaluates the model as it is now.
  std::function<Evaluation()> evaluate{};
  // Whether to evaluate when so many steps after the warm-up are done, 1 or more (StepPlan::evaluate_after). None: only
  // at the end. It is not asked after the last step.
  std::function<bool(int64_t steps_done)> due{};
  bool at_end = true;  // of a run that was neither stopped nor failed

  // Returns why the training ends behind this evaluation, in words for its stop_reason(); nothing: it goes on. None: it
  // always goes on. Not asked behind the last evaluation.
  std::function<std::optional<std::string>(const Evaluation&)> goal{};

  int64_t warmup_steps = 0;
  bool over_all_runs = false;  // `due` is asked with the global step instead
  int64_t batch_size = 0;      // for the epoch of each row, as SummaryOptions
  int64_t examples_per_epoch = 0;
  std::shared_ptr<EvaluationListener> listener{};  // null: nobody listens
  // Called behind the listener's on_result(), when the monitors have what was measured.
  std::function<void(const Evaluation&, int64_t global_step)> on_evaluation{};
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock

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
  // Evaluates, and returns false when it was stopped.
  bool evaluate(Trainer& trainer);

  EvaluationCallbackOptions options_;
  LocalSteps local_steps_;
  std::optional<Evaluation> last_;
  bool in_step_ = false;
  bool ended_ = false;
};

// Returns what monitors get of an evaluation, in the phase "eval": accuracies where they mean something, the loss,
// examples_per_second, and what is in Evaluation::more.
[[nodiscard]] Scalars evaluation_scalars(const Evaluation& evaluation, int64_t global_step, double epoch,
                                         double wall_time);

// Samples a second, 0 when no time has passed.
double examples_per_second(const Evaluation& evaluation);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
