// Computes the loss and the accuracies of a step from its outputs, for callbacks that show or record them.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

struct Accuracies {
  double top_1 = 0, top_5 = 0;  // 0 .. 1
  bool shows_top_5 = true;      // false: top-5 is not shown, because it means nothing with five classes or fewer
};

// Returns the mean of the replicas' losses, 0 when there is none.
double mean_loss(const StepView& view);

// Returns the accuracies over all replicas' outputs and labels; zeros when there are none.
Accuracies batch_accuracies(const StepView& view);

// Caches batch_accuracies() for several callers: computes it once per global step of a run.
class StepAccuracies {
 public:
  const Accuracies& of(const StepView& view);

 private:
  std::optional<int64_t> global_step_;
  Accuracies accuracies_;
};

}  // namespace trainyard::train
