// What a step's outputs and losses say of it, for callbacks that show or record it.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

struct Accuracies {
  double top_1 = 0, top_5 = 0;  // 0 .. 1
  bool shows_top_5 = true;      // false: it is in no line, as among five classes it says nothing
};

// Returns the mean of the replicas' losses, 0 when there is none.
double mean_loss(const StepView& view);

// Returns the accuracies over all replicas' outputs and labels; zeros when there are none.
Accuracies batch_accuracies(const StepView& view);

// batch_accuracies() for several that ask about the same step: computed once a global step of one run.
class StepAccuracies {
 public:
  const Accuracies& of(const StepView& view);

 private:
  std::optional<int64_t> global_step_;
  Accuracies accuracies_;
};

}  // namespace trainyard::train
