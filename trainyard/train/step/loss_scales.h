// Reads, saves and checks the loss scales of a TowerTrainer's replicas. Ends a training in which every step overflows.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/step/replica_set.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

class LossScales {
 public:
  // `replicas` must outlive it.
  explicit LossScales(ReplicaSet& replicas) : replicas_(replicas) {}

  // Returns replica 0's scale; nullopt where the loss is not scaled. Waits for the device.
  std::optional<LossScale> read() const;
  // Throws when LossScalerOptions::most_skips_at_floor steps in a row were skipped. `step` is the global step that has
  // run.
  void check(int64_t step) const;

  // Saves replica 0's loss scale, and gives it to all replicas on loading. Where replicas exchange no gradients, saves
  // those of the others behind "replica/<r>/", too. Without a saved scale they do not change.
  void save(core::StateWriter& writer) const;
  void load(const core::StateReader& reader);

 private:
  ReplicaSet& replicas_;
};

}  // namespace trainyard::train
