// What a TowerTrainer does after a step whose loss or gradients were not finite (OnNan): it stops the run and says
// where that began, counts a skipped step, or warns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/train/step/loss_scales.h"
#include "trainyard/train/step/replica_pass.h"

namespace trainyard::train {

class NonFiniteSteps {
 public:
  // All must outlive it.
  NonFiniteSteps(ReplicaSet& replicas, ReplicaPass& pass, NanGuard& nan_guard, const LossScales& loss_scales)
      : replicas_(replicas), pass_(pass), nan_guard_(nan_guard), loss_scales_(loss_scales) {}

  // After each cost of a step on the CPU, which is the global step `step`. Throws kCorruptData where the training ends
  // because something was not finite. Returns whether all was finite.
  bool check(int64_t step);
  // After a step on accelerators, whose loss is read every hundredth step only.
  void check_devices(int64_t step);
  // After a step whose costs were all finite: the next one that is skipped is the first in a row.
  void end_row() { skipped_in_a_row_ = 0; }
  int64_t skipped_steps() const { return skipped_steps_; }

 private:
  void treat(int64_t step);
  void warn_once(const std::string& where, const std::string& what);
  // Returns what was not finite, and where that began. Runs the step again, and puts back all that this changes.
  std::string describe();
  std::string first_non_finite_result() const;
  // Sets `ended` to false where the step could not be run again.
  std::optional<std::string> find_origin(int replica, bool& ended);
  std::optional<std::string> run_again(int replica);

  ReplicaSet& replicas_;
  ReplicaPass& pass_;
  NanGuard& nan_guard_;
  const LossScales& loss_scales_;
  int64_t skipped_steps_ = 0, skipped_in_a_row_ = 0;
};

}  // namespace trainyard::train
