// The work of the example's loop around the steps of an epoch: lines, means over the epoch, validation, checkpoint,
// TensorBoard's numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/train/callbacks/step_accuracies.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

struct CtlEpochsOptions {
  CtlPlan plan;
  int64_t display_every = 1;  // steps
  std::ostream* out = nullptr;
  // Validates on all processes. Returns nothing when one of them was stopped. Empty: no validation data.
  std::function<std::optional<train::Evaluation>()> validate;
  std::function<train::CheckpointInfo()> save;  // empty: no log_dir, or another process saves
};

// An epoch begins at the data's first sample, so that the samples after its last whole batch are dropped. After the
// first step of a run the first device's variables are broadcast to all devices, including those of other processes.
// The means so far are saved, so that a run that continues within an epoch prints those of the whole epoch.
class CtlEpochs : public train::Callback {
 public:
  CtlEpochs(train::TowerTrainer& trainer, CtlEpochsOptions options) : trainer_(trainer), options_(std::move(options)) {}
  std::string name() const override { return "train_ctl"; }

  void before_epoch(train::Trainer& trainer) override;
  void before_step(train::Trainer& trainer) override;
  void after_step(train::Trainer& trainer, const train::StepView& view) override;
  void after_epoch(train::Trainer& trainer) override;
  void trigger_epoch(train::Trainer& trainer) override;

  void save(core::StateWriter& writer) const override;
  // Throws kInvalidArgument when epochs had another number of steps.
  void load(const core::StateReader& reader) override;

  // Saves if steps were done since the last checkpoint, and logs it: for a run that was stopped.
  void save_rest();

  // Returns whether a validation is due after the steps that are done.
  [[nodiscard]] bool validates_now() const;
  // Makes the validation after the last step of the run that this one continues, which a stop has cut off there: saves,
  // and prints the epoch's line with it. Call it before train().
  void repeat_validation();

  const CtlMeans& means() const { return means_; }  // of the last epoch so far
  const std::optional<train::Evaluation>& validation() const { return validation_; }

 private:
  using Clock = std::chrono::steady_clock;
  void print_rate(int64_t global_step);
  void print_epoch(double learning_rate) const;
  void write_scalars(std::vector<std::pair<std::string, double>> values) const;
  void save_now(const std::string& what);

  train::TowerTrainer& trainer_;
  CtlEpochsOptions options_;
  train::StepAccuracies accuracies_;
  CtlMeans means_;
  std::optional<train::Evaluation> validation_;  // of this epoch, or of the last one with a validation
  int64_t saved_step_ = -1;                      // of the last checkpoint
  bool broadcast_ = false;
  std::optional<Clock::time_point> line_began_;  // none before the first step
  int64_t line_steps_ = 0;
  Clock::time_point epoch_began_, epoch_ended_;
  double epoch_seconds_ = 0;
  int64_t epoch_steps_ = 0;  // of this run
};

}  // namespace trainyard::frontends
