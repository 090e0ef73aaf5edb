// Collects what other ranks keep of the training (train::gather_state) before rank 0 saves it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Collective: all ranks add it, before the callback that saves. Rank 0 decides when that saves, and tells the others.
class GatherStateCallback : public Callback {
 public:
  // `gather` collects; it is collective. `checkpoints`: what saves on this rank; null: nothing does.
  GatherStateCallback(std::shared_ptr<parallel::ProcessGroup> ranks, std::function<void()> gather,
                      std::shared_ptr<CheckpointCallback> checkpoints)
      : ranks_(std::move(ranks)), gather_(std::move(gather)), checkpoints_(std::move(checkpoints)) {}

  std::string name() const override { return "gather_state"; }
  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger_epoch(Trainer& trainer) override;
  void after_train(Trainer& trainer) override;

 private:
  // Gathers on all ranks if rank 0 is about to save.
  void gather_if(Trainer& trainer, bool saves);

  const std::shared_ptr<parallel::ProcessGroup> ranks_;
  const std::function<void()> gather_;
  const std::shared_ptr<CheckpointCallback> checkpoints_;
  bool in_step_ = false;
};

}  // namespace trainyard::train
