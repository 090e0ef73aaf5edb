// A call of fit(): its parts, made and run in order.
#pragma once

#include <memory>
#include <optional>

#include "trainyard/core/base/export.h"
#include "trainyard/train/callbacks/checkpoint_callback.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/fit/fit_state.h"
#include "trainyard/train/fit/validation_record.h"
#include "trainyard/train/loop/single_cost_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class FitRun {
 public:
  // Makes the trainer and its callbacks, and loads the newest checkpoint, if there is one.
  explicit FitRun(const FitOptions& options);

  FitResult run();

 private:
  class EpochCallback;

  SingleCostOptions trainer_options() const;
  void add_callbacks();
  void resume();
  int64_t complete_epochs() const;
  bool complete() const;
  Evaluation evaluate();
  // Evaluates and compares, where there is a validation; then the caller's on_epoch.
  void end_epoch();
  std::shared_ptr<const Model> model();

  FitOptions options_;
  int64_t steps_per_epoch_;
  ModelDescription description_;
  std::unique_ptr<SingleCostTrainer> trainer_;
  std::shared_ptr<FitState> state_;
  std::shared_ptr<ValidationRecord> record_;
  std::unique_ptr<BestKeeper> best_;
  std::unique_ptr<Evaluator> evaluator_;
  std::optional<Evaluation> last_;
  int64_t first_step_ = 0;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
