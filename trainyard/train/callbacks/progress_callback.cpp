#include "trainyard/train/callbacks/progress_callback.h"

#include <utility>

#include <fmt/format.h>

namespace trainyard::train {

ProgressCallback::ProgressCallback(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.clock) {
    options_.clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  }
}

void ProgressCallback::before_train(Trainer& trainer) {
  const LoopOptions& loop = trainer.loop();
  progress_ = {.model = options_.model, .steps = loop.max_epoch * loop.steps_per_epoch};
  if (options_.examples_per_epoch > 0 && options_.batch_size > 0) {
    progress_.epochs = epoch_of_step(progress_.steps, options_.batch_size, options_.examples_per_epoch);
  }
  timed_steps_ = -1;
  bar_.emplace(options_.model, progress_.steps, options_.enabled);
}

void ProgressCallback::after_step(Trainer& trainer, const StepView&) {
  if (!options_.enabled) return;
  progress_.step = (trainer.epoch() - 1) * trainer.loop().steps_per_epoch + trainer.step_in_epoch();
  if (progress_.epochs > 0) {
    progress_.epoch = epoch_of_step(progress_.step, options_.batch_size, options_.examples_per_epoch);
  }
  if (++timed_steps_ == 0) {
    first_step_at_ = options_.clock();
  } else if (const double elapsed = options_.clock() - first_step_at_; elapsed > 0) {
    const double steps_per_second = static_cast<double>(timed_steps_) / elapsed;
    if (options_.batch_size > 0) {
      progress_.images_per_second = steps_per_second * static_cast<double>(options_.batch_size);
    }
    progress_.seconds_left = static_cast<double>(progress_.steps - progress_.step) / steps_per_second;
  }
  if (options_.learning_rate) progress_.learning_rate = options_.learning_rate();
  bar_->show(progress_line(progress_));
}

void ProgressCallback::show_evaluation(int64_t batches_done, int64_t batches) {
  if (!bar_) return;
  RunProgress pause = progress_;
  pause.doing = fmt::format("evaluating {}/{}", batches_done, batches);
  bar_->show(progress_line(pause));
}

}  // namespace trainyard::train
