// Where the replicas of a TowerTrainer get their batches from, and when there are no more.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

class StepInput {
 public:
  // Both must outlive it.
  StepInput(const TowerTrainerOptions& options, data::BatchSource& source) : options_(options), source_(source) {}

  // Takes the batches of all micro-steps of the next step, which is the global step `step`. Returns false where the
  // input ends before it has a batch for each replica; what it had of them is left out. Throws what the source throws,
  // which is then at the step's first batch again, where it can go back there; else a warning is logged.
  bool take_ahead(int64_t step);
  // Returns the next batches, one a replica: those that take_ahead() has taken, else those of the source. Throws
  // kInvalidArgument at the end of the source.
  std::vector<data::Batch> next();

 private:
  // Leaves out the batches that were taken ahead: the source goes back to `before`, or to the state `saved` if that is
  // not null.
  void put_back(data::Position before, const core::StateReader* saved);
  // Returns whether there is a batch to train on for each replica.
  [[nodiscard]] bool complete(const std::vector<data::Batch>& batches) const;

  const TowerTrainerOptions& options_;
  data::BatchSource& source_;
  std::deque<std::vector<data::Batch>> ahead_;
};

}  // namespace trainyard::train
