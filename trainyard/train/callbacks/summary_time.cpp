#include "trainyard/train/callbacks/summary_time.h"

#include <chrono>

#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

double system_wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double epoch_of(const Trainer& trainer, int64_t batch_size, int64_t examples_per_epoch) {
  if (examples_per_epoch > 0) {
    return static_cast<double>(trainer.global_step()) * static_cast<double>(batch_size) /
           static_cast<double>(examples_per_epoch);
  }
  const int64_t steps = trainer.loop().steps_per_epoch;
  const double part = steps == 0 ? 0 : static_cast<double>(trainer.step_in_epoch()) / static_cast<double>(steps);
  return static_cast<double>(trainer.epoch() - 1) + part;
}

}  // namespace trainyard::train
