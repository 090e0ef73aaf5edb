#include "trainyard/train/callbacks/progress_line.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace trainyard::train {

namespace {

// Parts of the line that may be left out, in this order.
enum class Shortened { kNothing, kRate, kPercentage, kModel, kEpoch };

std::string composed_line(const RunProgress& progress, Shortened shortened) {
  std::string line;
  const auto add = [&line](const std::string& part) { line += (line.empty() ? "" : " ") + part; };
  if (shortened < Shortened::kModel) add(progress.model);
  if (progress.epochs > 0 && shortened < Shortened::kEpoch) {
    add(fmt::format("epoch {}/{}", progress.epoch, progress.epochs));
  }
  if (progress.steps > 0 && shortened < Shortened::kPercentage) {
    add(fmt::format("{} %", 100 * std::min(progress.step, progress.steps) / progress.steps));
  }
  add(fmt::format("{}/{}", progress.step, progress.steps));
  if (!progress.doing.empty()) {
    add(progress.doing);
    return line;
  }
  if (const auto& speed = progress.images_per_second) {
    add(*speed < 10 ? fmt::format("{:.1f} images/s", *speed) : fmt::format("{:.0f} images/s", *speed));
  }
  if (progress.loss) add(fmt::format("loss {:.3g}", *progress.loss));
  if (progress.accuracy) add(fmt::format("accuracy {:.3g}", *progress.accuracy));
  if (progress.learning_rate && shortened < Shortened::kRate) add(fmt::format("rate {:.3g}", *progress.learning_rate));
  if (progress.seconds_left) add("left " + duration_text(*progress.seconds_left));
  return line;
}

}  // namespace

std::string progress_line(const RunProgress& progress, size_t width) {
  std::string line;
  for (const Shortened shortened :
       {Shortened::kNothing, Shortened::kRate, Shortened::kPercentage, Shortened::kModel, Shortened::kEpoch}) {
    line = composed_line(progress, shortened);
    if (width == 0 || line.size() <= width) break;
  }
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
