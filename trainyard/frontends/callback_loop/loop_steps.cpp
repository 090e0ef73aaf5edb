#include "trainyard/frontends/callback_loop/loop_steps.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::frontends::callback_loop {

LoopSteps::LoopSteps(std::shared_ptr<LoopReplicas> replicas, train::TowerTrainer& trainer, int first_device)
    : replicas_(std::move(replicas)), trainer_(trainer), first_device_(first_device), lr_(trainer.hyperparameters()) {}

const CheckpointManager& LoopSteps::make_checkpoints() {
  const LoopReplicas::Replica& first = replicas_->replica(0);
  checkpoints_ = in_callback("create_ckpt", [&] {
    return replicas_->callbacks().create_ckpt({.ckpt_path = replicas_->options().ckpt_path,
                                               .step = trainer_.global_step(),
                                               .lr = lr_,
                                               .optimizer = replicas_->optimizer(0),
                                               .train_model = first.model,
                                               .train_loss = first.loss_function,
                                               .trainer = trainer_});
  });
  if (checkpoints_.ckpt == nullptr || checkpoints_.manager == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "create_ckpt must give both", .expected = "a ckpt and a manager"});
  }
  return *checkpoints_.manager;
}

void LoopSteps::after_step(train::Trainer&, const train::StepView& view) {
  replicas_->settle_step(view);
  const int count = trainer_.options().devices.replicas;
  Tensors losses;
  for (int r = 0; r < count; ++r) losses.push_back(replicas_->replica(r).loss);
  for (int r = 0; r < count; ++r) call_steps(r, losses, view);
  replicas_->end_step();
}

void LoopSteps::call_steps(int replica, const Tensors& losses, const train::StepView& view) {
  const LoopReplicas::Replica& own = replicas_->replica(replica);
  const Callbacks& callbacks = replicas_->callbacks();
  const StepInput in{.dev = first_device_ + replica,
                     .step = view.global_step + 1,
                     .update_gradients = own.update_gradients,
                     .loss = own.loss,
                     .losses = losses,
                     .output = own.output,
                     .batch = own.batch,
                     .train_model = own.model,
                     .train_loss = own.loss_function,
                     .lr = lr_,
                     .optimizer = replicas_->optimizer(replica),
                     .display_gradients = own.display_gradients,
                     .gradients = own.gradients,
                     .ckpt = *checkpoints_.ckpt,
                     .manager = *checkpoints_.manager,
                     .parameters = *view.replicas[static_cast<size_t>(replica)].parameters,
                     .trainer = trainer_};
  for (const auto& [every, callback] : callbacks.every_steps) {
    if (in.step % every != 0) continue;
    in_callback(fmt::format("every_steps[{}], replica {}", every, replica), [&, &call = callback] { call(in); });
  }
  const auto once = callbacks.at_step.find(in.step);
  if (once == callbacks.at_step.end()) return;
  in_callback(fmt::format("at_step[{}], replica {}", in.step, replica), [&] { once->second(in); });
}

}  // namespace trainyard::frontends::callback_loop
