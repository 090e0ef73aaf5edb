// What a training needs of memory, known before its first step: executors are compiled for its batches, which plans
// their memory, and parameters, gradients and slots are there already.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/step/replica_pass.h"
#include "trainyard/train/step/sharpness_aware_pass.h"

namespace trainyard::train {

class MemoryForecast {
 public:
  // All must outlive it. `second_pass` may be null.
  MemoryForecast(ReplicaSet& replicas, const ReplicaPass& pass, const SharpnessAwarePass* second_pass)
      : replicas_(replicas), pass_(pass), second_pass_(second_pass) {}

  // Compiles before the first step, with `batches` as that will have, lets all ranks choose the kernels that the first
  // one chose, and logs the memory. Replicas are started.
  void prepare(const std::vector<data::Batch>& batches);
  // Returns what prepare() has found; nullopt before it.
  const std::optional<RunMemory>& memory() const { return memory_; }
  // Returns what TowerTrainer::plan_memory() does. Replicas are started.
  RunMemory plan(int64_t batch);

 private:
  // Compiles what replica `r` runs for batches of `samples`, on its thread. Returns what each of its executors takes.
  std::vector<std::optional<nn::ExecutorMemory>> compile(int r, int64_t samples);
  RunMemory measure(const std::vector<std::optional<nn::ExecutorMemory>>& executors) const;

  ReplicaSet& replicas_;
  const ReplicaPass& pass_;
  const SharpnessAwarePass* second_pass_;
  std::optional<RunMemory> memory_;
};

}  // namespace trainyard::train
