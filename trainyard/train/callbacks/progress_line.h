// Composes the text of the progress line at the bottom of a terminal; ProgressCallback draws it.
//
//   resnet20 epoch 3/10 34 % 1234/3600 812 images/s loss 0.52 accuracy 0.91 rate 0.05 left 1:23
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace trainyard::train {

// Values for the line. Unknown values are left out.
struct RunProgress {
  std::string model{};
  int64_t step = 0, steps = 0;  // updates done, and of the whole training
  int64_t epoch = 0,
          epochs =
              0;  // the pass over the data that the last step was in, from 1, and how many there will be; 0: not known
  std::optional<double> images_per_second{}, loss{}, learning_rate{}, seconds_left{};
  std::optional<double> accuracy{};  // of the last evaluation
  std::string doing{};               // "evaluating 12/40": shown instead of speed, loss, rate and time
};

// Returns the line. One that is longer than `width` columns, 0 for any length, loses in this order what is needed
// least: the learning rate, the percentage, the model's name, the epoch; so that speed, loss, accuracy and the time
// left are seen at 80 columns.
std::string progress_line(const RunProgress& progress, size_t width = 0);

// Returns the pass over the data, from 1, in which step `step` (from 1) begins.
[[nodiscard]] int64_t epoch_of_step(int64_t step, int64_t batch_size, int64_t examples_per_epoch);

// Returns "1:23" or "1:02:03".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace trainyard::train
