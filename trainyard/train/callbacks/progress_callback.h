// Draws the progress line of a run on a terminal, and nothing when stderr is not a terminal
// (train/callbacks/progress_line.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct ProgressOptions {
  std::string model = "training";
  std::optional<bool> enabled{};            // unset: where stderr is a terminal
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
  void set_loss(double loss);
  // Shows that training pauses: "evaluating 12/40".
  void show_evaluation(int64_t batches_done, int64_t batches);
  // Clears the line, so that other output can be written. Does nothing before a run.
  void clear();

 private:
  ProgressOptions options_;
  struct Line;
  std::shared_ptr<Line> line_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
