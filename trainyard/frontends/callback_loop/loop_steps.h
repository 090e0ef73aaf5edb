// Runs every_steps and at_step of the callback loop after each step, on each replica.
#pragma once

#include <memory>
#include <string>

#include "trainyard/frontends/callback_loop/loop_replicas.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::frontends::callback_loop {

class LoopSteps : public train::Callback {
 public:
  // The trainer must outlive it. `first_device` is the number of its first replica among those of all processes.
  LoopSteps(std::shared_ptr<LoopReplicas> replicas, train::TowerTrainer& trainer, int first_device);

  // Makes the checkpoint manager with create_ckpt, and returns it.
  const CheckpointManager& make_checkpoints();

  std::string name() const override { return "callback_loop"; }
  void after_step(train::Trainer& trainer, const train::StepView& view) override;

 private:
  void call_steps(int replica, const Tensors& losses, const train::StepView& view);

  std::shared_ptr<LoopReplicas> replicas_;
  train::TowerTrainer& trainer_;
  int first_device_;
  LearningRate lr_;
  Checkpoints checkpoints_;
};

}  // namespace trainyard::frontends::callback_loop
