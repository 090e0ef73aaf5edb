// The parts of the callback loop (callback_loop.h), each a callback with a default that can be replaced.
//
//   Callbacks callbacks = standard_callbacks();
//   callbacks.create_model = [](train::TowerContext& context) { return graph_model(context, graph()); };
//   callbacks.every_steps[100] = [](const StepInput& in) { if (in.dev == 0) in.manager.save(in.step); };
//
// In a step, input_pre, loss_pre, grad_pre and update_pre are called on each replica's thread, all at the same time:
// they may only write data of that replica. All others are called on the training thread, for one replica after the
// other; every_steps and at_step after the update of all replicas. An error of any callback ends the training.
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/callback_loop/checkpoint_manager.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/step/tower.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::callback_loop {

// The inputs and outputs of a model, and the inputs of a loss: one tensor, or several.
using Tensors = std::vector<at::Tensor>;

// Models and losses, made once per replica. models.h makes them from graphs and torch::nn modules.
struct Model {
  // Returns the output for an input; in training, under autograd.
  std::function<Tensors(const Tensors& input, const train::TowerInput& step)> call{};
  // Returns the sum of the losses that depend on parameters alone, [] under autograd. Empty: there are no such losses.
  std::function<at::Tensor()> regularization{};
};
// Returns the loss of a whole batch under autograd: its sum, [], or one loss a sample, [N], which are summed.
using Loss = std::function<at::Tensor(const Tensors& arguments, const train::TowerInput& step)>;

// One replica's batches, one after the other: a source of one replica, whose batch size is that of a replica.
using Dataset = std::shared_ptr<data::BatchSource>;

// The learning rate for callbacks around the update. It is saved with the run.
class LearningRate {
 public:
  explicit LearningRate(optim::Hyperparameters& hyperparameters) : hyperparameters_(hyperparameters) {}
  double value() const { return hyperparameters_.get("learning_rate"); }
  // Sets it from the next step on. Throws kInvalidArgument for a value that is not finite or less than 0.
  void set(double value) { hyperparameters_.set("learning_rate", value); }

 private:
  optim::Hyperparameters& hyperparameters_;
};

struct GradPreResult {
  at::Tensor loss_per_batch{};  // as a Loss returns it
  at::Tensor extra_loss{};      // [], does not depend on the batch; undefined: none
  // Patterns (core::matches_pattern) of the parameters that this step updates; nullopt: all that are not frozen. Other
  // parameters and their slots do not change. The same on all replicas; on the CPU only. Each such step plans the next
  // forward again: freeze parameters that never train (TowerTrainer::set_trainable).
  std::optional<std::vector<std::string>> trainable_vars{};
};

struct UpdatePreResult {
  core::NamedTensors update_gradients{};   // gradients for the optimizer; a parameter that is left out does not change
  core::NamedTensors display_gradients{};  // gradients for every_steps and at_step
};

// The data of one replica for every_steps and at_step. References are valid during the call, and their tensors require
// no gradient.
struct StepInput {
  int dev = 0;       // the replica, from 0
  int64_t step = 0;  // from 1, over all runs
  const core::NamedTensors& update_gradients;
  const at::Tensor& loss;  // as returned by create_loss()'s loss
  const Tensors& output;
  const core::NamedTensors& batch;
  const Model& train_model;
  const Loss& train_loss;
  LearningRate& lr;
  const optim::Optimizer& optimizer;
  const core::NamedTensors& display_gradients;
  const core::NamedTensors& gradients;  // as passed to update_pre
  core::Stateful& ckpt;
  CheckpointManager& manager;
  // The parameters of this replica's model and loss, by name. Each replica has a copy of its own: a callback that
  // changes a value must make the same change on every replica.
  nn::ParameterSet& parameters;
  train::TowerTrainer& trainer;  // set_trainable(), stop(), last_base_loss(), inference_tower(), monitors()
};

struct CheckpointInput {
  const std::string& ckpt_path;
  int64_t step{};  // done so far
  LearningRate& lr;
  const optim::Optimizer& optimizer;
  const Model& train_model;
  const Loss& train_loss;
  train::TowerTrainer& trainer;  // saves all of the above; its parameters() are those of model and loss
};
struct Checkpoints {
  std::shared_ptr<core::Stateful> ckpt{};
  std::shared_ptr<CheckpointManager> manager{};
};

struct Callbacks {
  // By N: every_steps are called at multiples of N, the smallest N first; at_step once, at step N, after those.
  std::map<int64_t, std::function<void(const StepInput& in)>> every_steps{};
  std::map<int64_t, std::function<void(const StepInput& in)>> at_step{};
  std::function<Dataset(int64_t per_replica_batch_size)> create_dataset{};
  std::function<Dataset(Dataset dataset, int64_t per_replica_batch_size)> make_batches{};
  std::function<Model(train::TowerContext& context)> create_model{};
  std::function<Loss(train::TowerContext& context)> create_loss{};
  std::function<std::unique_ptr<optim::Optimizer>(double lr, nn::ParameterSet& parameters)> create_opt{};
  std::function<Checkpoints(const CheckpointInput& in)> create_ckpt{};
  std::function<Tensors(const core::NamedTensors& batch, double lr)> input_pre{};
  std::function<Tensors(const Tensors& output, const core::NamedTensors& batch, const Model& train_model, double lr)>
      loss_pre;
  std::function<GradPreResult(const at::Tensor& loss, const Tensors& output, const core::NamedTensors& batch,
                              const Model& train_model, const Loss& train_loss, double lr)>
      grad_pre;
  // Called without autograd. `gradients` are copies, by parameter.
  std::function<UpdatePreResult(const core::NamedTensors& gradients, const at::Tensor& loss, const Tensors& output,
                                const core::NamedTensors& batch, const Model& train_model, const Loss& train_loss,
                                double lr, const optim::Optimizer& optimizer)>
      update_pre;

  // Throws kInvalidArgument for a missing callback, with its name and signature, and for steps less than 1.
  void validate() const;
};

// Returns the default callbacks, which print to `out` (it must outlive them):
//
//   every_steps   [1] prints the step, [10] prints the loss of the global batch and writes it as the scalar "loss"
//   at_step       none
//   make_batches  the dataset as it is
//   create_opt    Nadam with an epsilon of 0.001
//   create_ckpt   the trainer, which saves everything; 50 are kept
//   input_pre     the first tensor of a batch of two (or one, where there is no second in inference)
//   loss_pre      the output, and the batch's second tensor behind it
//   grad_pre      the loss, the model's regularization, all parameters
//   update_pre    replaces NaN by 0, which is displayed; then clips by a global norm of 10
//
// create_dataset, create_model and create_loss have none and must be given.
[[nodiscard]] Callbacks standard_callbacks(std::ostream& out = std::cout);

// Returns the gradients with NaN replaced by 0. Those without NaN are the same tensors.
[[nodiscard]] core::NamedTensors without_nan(const core::NamedTensors& gradients);
// Returns the gradients times norm / max(norm, the root of the sum of all squares), as tf.clip_by_global_norm does.
// When one is not finite all become NaN, as there.
[[nodiscard]] core::NamedTensors clip_by_global_norm(const core::NamedTensors& gradients, double norm);

}  // namespace trainyard::frontends::callback_loop
TRAINYARD_EXPORT_END
