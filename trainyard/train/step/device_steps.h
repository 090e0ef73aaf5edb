// The steps of a TowerTrainer's replicas on their accelerators, which may be recorded and replayed
// (train/step/device_step.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "trainyard/train/step/device_step.h"
#include "trainyard/train/step/memory_forecast.h"
#include "trainyard/train/step/replica_pass.h"

namespace trainyard::train {

class DeviceSteps {
 public:
  // All must outlive it.
  DeviceSteps(ReplicaSet& replicas, ReplicaPass& pass, const MemoryForecast& forecast, StepTimer& timer)
      : replicas_(replicas),
        pass_(pass),
        forecast_(forecast),
        timer_(timer),
        steps_(static_cast<size_t>(replicas.size())) {}

  // Does the work of one micro-step of replica `r`, on its thread: calls `work` with the batch on the device, or
  // replays what it did before.
  void run(int r, const data::Batch& batch, const std::function<void(const data::Batch&)>& work);
  // Discards the recordings, which contain the hyperparameters of the time when they were made.
  void discard_recordings() {
    for (Replica& replica : steps_) replica.step.reset();
  }

 private:
  struct Replica {
    std::optional<DeviceStep> step;  // from the first step on
    // What a captured step writes. Steps that are not replayed replace these tensors.
    ReplicaView recorded_view;
    at::Tensor recorded_l2_loss;
  };
  DeviceStep::Options options_for(int r, const data::Batch& batch) const;

  ReplicaSet& replicas_;
  ReplicaPass& pass_;
  const MemoryForecast& forecast_;
  StepTimer& timer_;
  std::vector<Replica> steps_;
};

}  // namespace trainyard::train
