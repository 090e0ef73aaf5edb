// A training loop that consists of callbacks with defaults. They work unchanged on one or many devices.
//
//   Callbacks callbacks = standard_callbacks();
//   callbacks.create_dataset = [](int64_t batch_size) { return std::make_shared<MyData>(batch_size); };
//   callbacks.create_model = [](train::TowerContext& context) { return graph_model(context, my_graph()); };
//   callbacks.create_loss = [](train::TowerContext&) { return loss_of(summed_cross_entropy); };
//   callbacks.every_steps[100] = [](const StepInput& in) { if (in.dev == 0) in.manager.save(in.step); };
//   train(1000, {"cpu:0", "cpu:1"}, {.batch_size = 64, .ckpt_path = "out"}, callbacks);
//
// A step, for each replica on its own thread:
//
//   batch -> input_pre -> model -> loss_pre -> loss -> grad_pre -> backward
//         -> sum over replicas -> update_pre -> update
//
// and then, after all replicas have finished the step, for one replica after the other: every_steps in the order of N,
// then at_step.
//
// input_pre, loss_pre, grad_pre and update_pre are called on each replica's thread, all at the same time: they may only
// write data of that replica. All others are called on the training thread. An error of any callback ends the training.
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
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/step/tower.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::callback_loop {

// Saves and restores the state of the callback loop. The loop restores the newest checkpoint when it starts and saves
// none: callbacks do.
class CheckpointManager {
 public:
  // Keeps the newest `max_to_keep` checkpoints of `ckpt` in `directory`. Empty: restores nothing, and saving is an
  // error.
  CheckpointManager(std::string directory, std::shared_ptr<core::Stateful> ckpt, int64_t max_to_keep = 50);

  // Saves as the checkpoint of this step, durably. Throws as train::CheckpointStore::save() does, and kInvalidArgument
  // without a directory.
  train::CheckpointInfo save(int64_t step);
  // Loads the newest checkpoint and returns it, or returns nothing when there is none. Throws as
  // train::load_checkpoint() does.
  std::optional<train::CheckpointInfo> restore();
  // Returns the newest checkpoint.
  [[nodiscard]] std::optional<train::CheckpointInfo> latest() const;

  const std::string& directory() const { return directory_; }
  const std::shared_ptr<core::Stateful>& ckpt() const { return ckpt_; }

 private:
  std::string directory_;
  std::shared_ptr<core::Stateful> ckpt_;
  int64_t max_to_keep_;
};

// The inputs and outputs of a model, and the inputs of a loss: one tensor, or several.
using Tensors = std::vector<at::Tensor>;

// Models and losses, made once per replica. graph_model(), module_model() and loss_of() make them from graphs,
// torch::nn modules and functions.
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
  const Tensors& losses;   // the same of each replica of this process, in order
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
  int64_t step{};  // 0: no checkpoint has been restored yet
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
//   every_steps   [1] prints the step, [10] prints the mean loss of the global batch, without extra_loss, and writes it
//                 as the scalar "loss"
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

// The gradients that update_pre gets.
enum class UpdateScope {
  // The sum over replicas of the gradients of (loss_per_batch / global batch + extra_loss / replicas): one device and
  // many give the same.
  kGlobal,
  // Each replica's own, of (loss_per_batch / global batch + extra_loss), which are then summed: a clip by norm clips
  // less on more replicas, and extra_loss counts once a replica.
  kReplica,
};

struct Options {
  int64_t batch_size = 8;  // of all devices together; a multiple of their number
  double learning_rate = 0.01;
  std::string ckpt_path{};     // the folder of checkpoints; empty: none
  std::string summary_path{};  // the folder of TensorBoard's event files; empty: none
  UpdateScope update_scope = UpdateScope::kGlobal;
  uint64_t seed = 0;      // seed of initial values and of random numbers in the model
  void validate() const;  // throws kInvalidArgument
};

// Trains until `steps` steps are done over all runs, and returns the trainer. First it restores the newest checkpoint,
// if there is one, and continues its steps and data. It saves none: callbacks do. Data repeat forever.
//
// The trainer's inference_tower() runs input_pre and the model and returns the outputs "output", "output_1", ...
//
// Processes that mpirun has started train together, each on `devices` of its own, with the same steps, options and
// callbacks: two processes of a device each give what one process gives on two devices, bit for bit. batch_size is then
// that of the devices of all processes. create_dataset is called on each process and gives the batches of all.
// StepInput numbers devices over all processes, so that device 0 is that of one process alone, the one that loads the
// checkpoint, gives it to the others and has the monitors: save there. What a callback sets, it sets in each process.
//
// Throws kInvalidArgument for devices, options and callbacks that cannot be used, and for processes that do not begin
// alike; kUnsupported for a missing GPU; and what callbacks throw, with the callback's name, step and replica.
std::unique_ptr<train::TowerTrainer> train(int64_t steps, const std::vector<std::string>& devices,
                                           const Options& options, Callbacks callbacks);

struct GraphModelOptions {
  std::string prefix{};  // prefix of all names of parameters: "generator/"
  // The regularization is this times the sum of the squares of all parameters whose spec decays, as in Keras' l2.
  double l2 = 0;
};

// Returns a model that runs the graph: one input [N, C, H, W], one output, the logits.
[[nodiscard]] Model graph_model(train::TowerContext& context, const nn::Graph& graph,
                                const GraphModelOptions& options = {});

struct ModuleShapes {
  int64_t channels = 3, height = 0, width = 0;  // of one sample of the input
  std::vector<int64_t> output{};                // of one sample's
};

// Returns a model that runs a torch::nn module: make() returns std::shared_ptr<M>, a new module each time, and
// M::forward takes and returns one tensor. Its parameters are called "module.<name>".
template <typename Make>
Model module_model(train::TowerContext& context, Make make, const ModuleShapes& shapes,
                   const GraphModelOptions& options = {}) {
  nn::GraphBuilder builder({.image = {shapes.channels, shapes.height, shapes.width}, .name = "module"});
  const auto module = builder.foreign("module", builder.input(), nn::foreign_op(make, shapes.output, "module"));
  return graph_model(context, builder.build(module), options);
}

// Returns a loss without parameters: a function of the first two of its arguments, the output and the target.
[[nodiscard]] Loss loss_of(std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> function);

}  // namespace trainyard::frontends::callback_loop
TRAINYARD_EXPORT_END
