// Tries batches of a training on real memory, for --batch_size=auto: a step of each size, within a limit of the
// CPU allocator, so that too large a batch is an error and never a process that the system ends.
#pragma once

#include <cstdint>
#include <functional>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns whether batches of this run can be tried: trainings on the CPU, with the caching allocator, whose data and
// model are not the caller's own.
[[nodiscard]] bool can_try_batches(const PreparedRun& run);

struct BatchTrials {
  std::function<train::TowerTrainerOptions()> make_trainer{};  // of this process alone
  int64_t untouched_per_image = 0;  // bytes that a trial does not use: batches that wait, evaluations
  int64_t first = 1, most = 1;      // the size that is tried first, and the largest one
  int64_t budget = 0;               // bytes that the process may take
};

struct TriedBatch {
  int64_t batch = 0;
  int64_t bytes = 0;   // that the process had during its trial, with what is not allocated
  int64_t beyond = 0;  // the smallest size that did not fit; 0: none was tried
  int trials = 0;
};

// Returns the largest batch that fits, within 5 %. Restores the allocator's limit, and releases what the trials held.
// Throws kNoSpace when one image does not fit, and what training throws for other reasons.
TriedBatch try_batches(const PreparedRun& run, const BatchTrials& trials);

}  // namespace trainyard::frontends
