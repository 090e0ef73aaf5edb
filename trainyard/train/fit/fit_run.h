// One call of fit(): makes its parts and runs them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/train/evaluation/prediction_counts.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/fit/fit_state.h"
#include "trainyard/train/session/training_session.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

class FitRun {
 public:
  // Makes the trainer and its callbacks, and loads the newest checkpoint if there is one.
  explicit FitRun(const FitOptions& options);

  FitResult run();

 private:
  class EpochCallback;

  TowerTrainerOptions trainer_options() const;
  SessionOptions session_options() const;
  SessionSteps session_steps();
  int64_t complete_epochs() const;
  bool complete() const;
  void make_evaluator();
  // Returns the current weights for evaluation and for the result: the averaged ones, with matching batch norm
  // statistics, when the training averages, else the trained ones.
  nn::ParameterSet& served_parameters();
  void recalibrate(nn::ParameterSet& weights);
  // Collective over the processes, which share the batches of the source. Predictions are counted into `counts`, where
  // it is not null.
  Evaluation evaluate(data::BatchSource& source, const std::vector<std::shared_ptr<Metric>>& metrics,
                      PredictionCounts* counts = nullptr);
  // Evaluates all sets, into last_ and last_of_more_.
  void evaluate_all();
  // Evaluates a training that has no step left, where there is a validation source. A stop leaves last_ empty.
  void evaluate_again();
  // Evaluates and compares when there is a validation source; then calls on_epoch.
  void end_epoch();
  // Returns whether a stop has cut off the evaluation of the last epoch.
  bool lacks_evaluation() const;
  // Ends an epoch whose steps an earlier call has done, if that lacks its evaluation. Before the first step.
  void repeat_evaluation();
  // Writes evaluation.json of the last evaluation, on rank 0.
  void write_explanation() const;
  std::shared_ptr<const Model> model();

  FitOptions options_;
  int64_t steps_per_epoch_;
  ModelDescription description_;
  std::unique_ptr<TowerTrainer> trainer_;
  std::shared_ptr<FitState> state_;
  std::optional<TrainingSession> session_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<core::Communicator> communicator_;  // by which metrics are reduced over processes; null: they are not
  const std::vector<std::shared_ptr<Metric>>* measured_ = nullptr;  // metrics of the running evaluation
  std::unique_ptr<PredictionCounts> counts_;  // of the first set; null: the evaluation is not explained
  PredictionCounts* counting_ = nullptr;      // of the running evaluation; null: it is not counted
  std::optional<int64_t> counted_at_;         // global step of last_; nothing: counts_ holds another evaluation
  std::optional<Evaluation> last_;
  std::vector<std::pair<std::string, Evaluation>> last_of_more_;
  int64_t recalibrated_at_ = -1;  // global step
};

}  // namespace trainyard::train
