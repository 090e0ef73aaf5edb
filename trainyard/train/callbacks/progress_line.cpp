#include "trainyard/train/callbacks/progress_line.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace trainyard::train {

std::string progress_line(const RunProgress& progress) {
  std::string line = progress.model;
  if (progress.epochs > 0) line += fmt::format(" epoch {}/{}", progress.epoch, progress.epochs);
  if (progress.steps > 0) line += fmt::format(" {} %", 100 * std::min(progress.step, progress.steps) / progress.steps);
  line += fmt::format(" {}/{}", progress.step, progress.steps);
  if (!progress.doing.empty()) return line + " " + progress.doing;
  if (const auto& speed = progress.images_per_second) {
    line += *speed < 10 ? fmt::format(" {:.1f} images/s", *speed) : fmt::format(" {:.0f} images/s", *speed);
  }
  if (progress.loss) line += fmt::format(" loss {:.3g}", *progress.loss);
  if (progress.learning_rate) line += fmt::format(" rate {:.3g}", *progress.learning_rate);
  if (progress.seconds_left) line += " left " + duration_text(*progress.seconds_left);
  return line;
}

int64_t epoch_of_step(int64_t step, int64_t batch_size, int64_t examples_per_epoch) {
  return std::max<int64_t>(0, step - 1) * batch_size / examples_per_epoch + 1;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace trainyard::train
