#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/progress.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/progress_line.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

struct ProgressCallback::Line {
  std::optional<core::ProgressBar> bar{};
  RunProgress progress{};
  int64_t timed_steps = 0;  // steps of this run, without its first one, which is slower
  double first_step_at = 0;
};

ProgressCallback::ProgressCallback(ProgressOptions options)
    : options_(std::move(options)), line_(std::make_shared<Line>()) {
  if (!options_.enabled) options_.enabled = core::ProgressBar::stderr_is_terminal();
  if (!options_.clock) options_.clock = core::steady_seconds;
}

void ProgressCallback::before_train(Trainer& trainer) {
  const LoopOptions& loop = trainer.loop();
  line_->progress = {.model = options_.model, .steps = loop.max_epoch * loop.steps_per_epoch};
  if (options_.examples_per_epoch > 0 && options_.batch_size > 0) {
    line_->progress.epochs = epoch_of_step(line_->progress.steps, options_.batch_size, options_.examples_per_epoch);
  }
  line_->timed_steps = -1;
  line_->bar.emplace(options_.model, line_->progress.steps, *options_.enabled);
}

void ProgressCallback::after_step(Trainer& trainer, const StepView&) {
  if (!*options_.enabled) return;
  line_->progress.step = (trainer.epoch() - 1) * trainer.loop().steps_per_epoch + trainer.step_in_epoch();
  if (line_->progress.epochs > 0) {
    line_->progress.epoch = epoch_of_step(line_->progress.step, options_.batch_size, options_.examples_per_epoch);
  }
  if (++line_->timed_steps == 0) {
    line_->first_step_at = options_.clock();
  } else if (const double elapsed = options_.clock() - line_->first_step_at; elapsed > 0) {
    const double steps_per_second = static_cast<double>(line_->timed_steps) / elapsed;
    if (options_.batch_size > 0) {
      line_->progress.images_per_second = steps_per_second * static_cast<double>(options_.batch_size);
    }
    line_->progress.seconds_left = static_cast<double>(line_->progress.steps - line_->progress.step) / steps_per_second;
  }
  if (options_.learning_rate) line_->progress.learning_rate = options_.learning_rate();
  line_->bar->show(progress_line(line_->progress, core::ProgressBar::columns()));
}

void ProgressCallback::show_evaluation(int64_t batches_done, int64_t batches) {
  if (!line_->bar) return;
  RunProgress pause = line_->progress;
  pause.doing = fmt::format("evaluating {}/{}", batches_done, batches);
  line_->bar->show(progress_line(pause, core::ProgressBar::columns()));
}

void ProgressCallback::set_loss(double loss) {
  line_->progress.loss = loss;
}

void ProgressCallback::set_accuracy(double accuracy) {
  line_->progress.accuracy = accuracy;
}

void ProgressCallback::clear() {
  if (line_->bar) line_->bar->clear();
}

}  // namespace trainyard::train
