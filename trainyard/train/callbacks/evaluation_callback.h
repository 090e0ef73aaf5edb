// Callbacks that evaluate during a training. EvaluationCallback evaluates at chosen steps and at the end, and stops the
// run when its goal is reached. InferenceRunner measures the model on any number of validation sets, each with its own
// metrics:
//
//   auto evaluator = std::make_shared<Evaluator>(EvaluatorOptions{.graph = graph}, trainer.parameters());
//   trainer.add(std::make_shared<InferenceRunner>(
//       evaluator, std::vector<InferenceSet>{{"val", source, {std::make_shared<TopKAccuracy>(1)}}}));
//
// writes "val/top_1_accuracy" to the monitors after each epoch, or at the times of a PeriodicTrigger.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {
class CutEvaluation;  // train/callbacks/cut_evaluation.h
class LocalSteps;
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

enum class EvaluationTime { kDuringTraining, kAtTheEnd };

// Observes an EvaluationCallback. Methods are called in this order on the trainer's thread, and do nothing by default.
class EvaluationListener {
 public:
  virtual ~EvaluationListener() = default;
  virtual void on_begin(EvaluationTime, int64_t /*global_step*/) {}
  // The evaluation is complete. Neither this nor on_resume() is called when it was stopped.
  virtual void on_result(const Evaluation&, int64_t /*global_step*/) {}
  // After an evaluation during training: training continues, or it ends because of `reason`.
  virtual void on_resume() {}
  virtual void on_goal(const std::string& /*reason*/) {}
  // The training has ended, before the last evaluation. Only called when there are evaluations during training.
  virtual void on_training_end() {}
};

struct EvaluationCallbackOptions {
  // Evaluates the current model.
  std::function<Evaluation()> evaluate{};
  // Returns whether to evaluate after so many steps from the end of the warm-up, 1 or more (StepPlan::evaluate_after).
  // Empty: evaluates at the end only. Not called after the last step.
  std::function<bool(int64_t steps_done)> due{};
  // Evaluates the model at the end. Empty: `evaluate`.
  std::function<Evaluation()> evaluate_at_end{};
  bool at_end = true;  // whether to evaluate at the end of a run that was neither stopped nor failed

  // Returns why the training ends after this evaluation, as text for its stop_reason(), or nothing when it continues.
  // Empty: it always continues. Not called after the last evaluation.
  std::function<std::optional<std::string>(const Evaluation&)> goal{};

  int64_t warmup_steps = 0;
  bool over_all_runs = false;  // `due` is called with the global step instead
  int64_t batch_size = 0;      // for the epoch of each row, as in SummaryOptions
  int64_t examples_per_epoch = 0;
  std::shared_ptr<EvaluationListener> listener{};  // null: none
  // Called after the listener's on_result(), when the monitors have the results.
  std::function<void(const Evaluation&, int64_t global_step)> on_evaluation{};
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock
  // Remembers an evaluation that a stop has cut off (a TrainingSession's). Null: it is not repeated.
  std::shared_ptr<CutEvaluation> cut{};

  void validate() const;  // throws kInvalidArgument
};

// Pauses training for evaluations, and evaluates at the end. Writes the monitors' "eval" phase, and stops the run when
// its goal is reached. An EvaluationListener does the printing. The monitors get top_1_accuracy, top_5_accuracy, loss
// and examples_per_second. An evaluation that a stop has cut off is repeated by the run that continues, before its
// first step.
class EvaluationCallback : public Callback {
 public:
  explicit EvaluationCallback(EvaluationCallbackOptions options);

  std::string name() const override { return "evaluation"; }

  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

  // Returns the last evaluation of this run.
  const std::optional<Evaluation>& last() const { return last_; }

 private:
  // Evaluates between two steps, and stops the run when its goal is reached.
  void pause(Trainer& trainer);
  // Evaluates, and returns false when it was stopped.
  bool evaluate(Trainer& trainer, const std::function<Evaluation()>& measure);

  EvaluationCallbackOptions options_;
  std::shared_ptr<LocalSteps> local_steps_;
  std::optional<Evaluation> last_;
  bool in_step_ = false;
  bool ended_ = false;
};

// Returns an evaluation's values for monitors, in the phase "eval": accuracies if there are any, the loss,
// examples_per_second, and Evaluation::more.
[[nodiscard]] Scalars evaluation_scalars(const Evaluation& evaluation, int64_t global_step, double epoch,
                                         double wall_time);

// Returns samples per second, 0 when no time has passed.
[[nodiscard]] double examples_per_second(const Evaluation& evaluation);

struct InferenceSet {
  std::string name{};  // the phase of its values, "val"
  std::shared_ptr<data::BatchSource> source{};
  std::vector<std::shared_ptr<Metric>> metrics{};
  int64_t batches = 0;  // 0: until the source ends
};

struct InferenceOptions {
  // Set it when each rank has a part of the sets; all ranks then need the callback and get the same results.
  core::Communicator* ranks = nullptr;
  std::function<void()> before{};        // called before the sets: waits for the trainer's device
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock
};

// Each set starts with the source's first sample. A set whose evaluation was stopped (kCancelled) writes nothing.
class InferenceRunner : public Callback {
 public:
  // Throws kInvalidArgument for no sets, a set without source or metrics, a name that is empty, "train" or used twice,
  // and two results of the same name in a set.
  InferenceRunner(std::shared_ptr<Evaluator> evaluator, std::vector<InferenceSet> sets, InferenceOptions options = {});

  std::string name() const override { return name_; }  // "inference_val": from the names of its sets
  void trigger(Trainer& trainer) override;

 private:
  std::shared_ptr<Evaluator> evaluator_;
  std::vector<InferenceSet> sets_;
  InferenceOptions options_;
  std::string name_ = "inference";
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
