// A progress bar over the steps of a run, on a terminal only.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "trainyard/core/progress.h"
#include "trainyard/train/callback.h"
#include "trainyard/train/trainer.h"

namespace trainyard::train {

class ProgressCallback : public Callback {
 public:
  explicit ProgressCallback(std::string label = "training", bool enabled = core::ProgressBar::stderr_is_terminal())
      : label_(std::move(label)), enabled_(enabled) {}

  std::string name() const override { return "progress"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override {
    const LoopOptions& loop = trainer.loop();
    bar_.emplace(label_, loop.max_epoch * loop.steps_per_epoch, enabled_);
  }
  void after_step(Trainer& trainer, const StepView&) override {
    bar_->advance_to((trainer.epoch() - 1) * trainer.loop().steps_per_epoch + trainer.step_in_epoch());
  }
  void after_train(Trainer&) override { bar_.reset(); }

  // Clears the line, so that other output can be written. Does nothing outside of a run.
  void clear() {
    if (bar_) bar_->clear();
  }

 private:
  std::string label_;
  bool enabled_;
  std::optional<core::ProgressBar> bar_;
};

}  // namespace trainyard::train
