// The replicas of the callback loop: their towers, which call the callbacks around forward and loss, and the hooks
// around the reduction, which call update_pre.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/frontends/callback_loop/callback_loop.h"
#include "trainyard/train/loop/error_context.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends::callback_loop {

// Calls `work`, and prefixes its errors with the callback's name.
template <typename Work>
auto in_callback(const std::string& name, const Work& work) {
  try {
    return work();
  } catch (...) {
    throw train::as_error(std::current_exception()).in(name);
  }
}

class LoopReplicas {
 public:
  // `replicas` are those of this process, `total` those of all processes.
  LoopReplicas(Options options, Callbacks callbacks, int replicas, int total);

  // Each of the next three refers to this.
  train::TowerFunction tower();
  train::StepHooks hooks();
  std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)> make_optimizer();

  const Options& options() const { return options_; }
  const Callbacks& callbacks() const { return callbacks_; }

  struct Replica {
    Model model;
    Loss loss_function;
    // The data of the current step, which are kept after the step until end_step().
    double lr = 0;
    core::NamedTensors batch;
    Tensors output;
    at::Tensor loss;
    std::optional<std::vector<std::string>> trainable_vars;
    core::NamedTensors gradients, update_gradients, display_gradients;
    std::vector<nn::ParameterId> resting;  // parameters that this step does not update
  };
  const Replica& replica(int r) const { return replicas_[static_cast<size_t>(r)]; }
  const optim::Optimizer& optimizer(int r) const;

  // Makes all parameters trainable again after a step with trainable_vars. Throws kInvalidArgument when replicas have
  // updated different ones. Called between steps.
  void settle_step(const train::StepView& view);
  // Releases the data of the step.
  void end_step();

 private:
  train::TowerOutput run_tower(Replica& own, const train::TowerContext& context, const train::TowerInput& in);
  static core::NamedTensors named_outputs(const Tensors& outputs);
  // Calls update_pre with the gradients divided by `factor`, and replaces them by its result times `factor`.
  void change_gradients(int r, nn::ParameterSet& parameters, double factor);
  void rest(int r, nn::ParameterSet& parameters);

  Options options_;
  Callbacks callbacks_;
  std::vector<Replica> replicas_;
  int total_;
  std::vector<optim::Optimizer*> optimizers_;  // by replica
};

}  // namespace trainyard::frontends::callback_loop
