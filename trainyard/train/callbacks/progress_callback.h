// Draws the progress line of a run on a terminal, and nothing when stderr is not a terminal
// (train/callbacks/progress_line.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/progress.h"
#include "trainyard/train/callbacks/progress_line.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct ProgressOptions {
  std::string model = "training";
  bool enabled = core::ProgressBar::stderr_is_terminal();
  int64_t batch_size = 0;                   // images a step, over all workers; 0: no speed is shown
  int64_t examples_per_epoch = 0;           // 0: no epochs are shown
  std::function<double()> learning_rate{};  // returns that of the last step; empty: not shown
  std::function<double()> clock{};          // seconds; default: a steady clock
};

class ProgressCallback : public Callback {
 public:
  explicit ProgressCallback(ProgressOptions options = {});

  std::string name() const override { return "progress"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView&) override;
  // Only clears the line, because other callbacks may still evaluate.
  void after_train(Trainer&) override { clear(); }

  // Sets the loss to show. The caller sets it, because reading it back can cost more than a step.
  void set_loss(double loss) { progress_.loss = loss; }
  // Shows that training pauses: "evaluating 12/40".
  void show_evaluation(int64_t batches_done, int64_t batches);
  // Clears the line, so that other output can be written. Does nothing before a run.
  void clear() {
    if (bar_) bar_->clear();
  }

 private:
  ProgressOptions options_;
  std::optional<core::ProgressBar> bar_;
  RunProgress progress_;
  int64_t timed_steps_ = 0;  // steps of this run, without its first one, which is slower
  double first_step_at_ = 0;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
