// The options of a TowerTrainer (train/step/tower_trainer.h): models, devices, precision, the exchange of gradients,
// costs with their optimizers, and hooks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/sharpness_aware.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/on_nan.h"
#include "trainyard/train/step/tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// What happens when the input has no further batch for each replica.
enum class EndOfInput {
  kError,  // throw kInvalidArgument: the input was expected to repeat
  kStop,   // the training ends there, as after Trainer::stop(), with the steps that it has done
};

struct StepHooks {
  std::function<void(int replica, data::Batch& batch)> input_pre{};
  // May change the replica's own gradients, which hold the loss scale, before they are reduced; with several costs, in
  // each one's turn.
  std::function<void(int replica, nn::ParameterSet& parameters)> reduce_pre{};
  // May change the gradients that the optimizer is about to use: reduced, without the loss scale, with those of the
  // regularization, which need an extra pass over memory only when this hook is set. Called on the replicas that have
  // an optimizer (with parameter_server: the first); when several have one, all must do the same. Also called for a
  // step that an automatic loss scale skips, with gradients that are not finite.
  std::function<void(int replica, nn::ParameterSet& parameters)> update_pre{};
};

// One of several costs that a training minimizes in turns, such as the two of a GAN: a loss of the tower, and an
// optimizer for the parameters that it changes.
struct CostOptions {
  std::string
      loss;  // its name in TowerOutput::losses. The tower is told in TowerInput::cost, and may leave out others.
  // Makes the optimizer, whose OptimizerOptions::parameters say what it changes: no two may share any.
  optim::MakeOptimizer make_optimizer{};
  optim::LearningRate learning_rate{};
  int64_t every = 1;  // in steps whose number, from 0, is a multiple
};

// A schedule of a hyperparameter other than the learning rate. It applies to the first of these names that the
// optimizer has, such as {"momentum", "beta1"} for a cycle of momentum. With several costs the names are
// "<loss>/momentum" and so on.
struct ScheduledNumber {
  std::vector<std::string> names{};
  optim::Schedule schedule{};
};

// How the threads of replicas share the cores of this process.
struct ReplicaThreadOptions {
  int intra_op_threads = 0;                        // all replicas together; 0: the cores that this process may use
  std::vector<core::ThreadPlacement> placement{};  // one a replica; empty: anywhere
};

// How the gradients of replicas and processes are combined into one update.
struct ExchangeOptions {
  std::string variable_update = "parameter_server";  // a name of parallel::variable_updates()
  std::optional<parallel::GradientReduction> reduction{};
  // Batch norms of graphs normalize with the statistics of all replicas' batches, of other processes too (PyTorch calls
  // it SyncBatchNorm). Replicas then wait for each other in each norm, so custom towers must run the same graphs in the
  // same order. torch::nn modules keep their own statistics. Works on the CPU only, with a variable update that
  // exchanges gradients.
  bool sync_batch_norm = false;
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // how long a replica waits for the others in a step
};

struct TowerTrainerOptions {
  // What each device computes: a graph with a loss (empty: softmax cross-entropy), or custom towers. Their first loss
  // is the cost. Towers draw from ATen's default generator as custom layers do.
  nn::Graph graph{};
  LossModule loss{};
  // The same network for images of other sizes than graph's, which training batches may have (graph_tower.h).
  std::vector<nn::Graph> other_sizes{};
  TowerFunction tower{};  // then there is no graph and no loss
  // The replicas' devices, and with which kernels and precision they compute. Without kernel choices the trainer makes
  // an object for them, which is saved. Before the first step, rank 0's choices are copied to all other processes. With
  // an automatic loss scale, replicas that exchange no gradients each have their own. With sync_batch_norm
  // make_communicators is called once more, for communicators that are used at the same time as the first ones.
  OpenDevices devices{};
  ReplicaThreadOptions threads{};
  ExchangeOptions exchange{};
  // What happens when losses, or gradients after their reduction and update_pre, are not finite. Where an automatic
  // loss scale treats gradients, only losses count. On accelerators kSkip is refused, and kStop and kIgnore check the
  // loss of every hundredth step, after its update.
  OnNan on_nan = OnNan::kStop;
  // With kStop all batches of a step are taken before before_step() of callbacks, so that no step begins that cannot be
  // completed; the remaining input is not used. With several processes, all must end at the same step.
  EndOfInput end_of_input = EndOfInput::kError;
  int micro_steps = 1;  // gradients of this many batches are averaged into one update
  uint64_t seed = 0;
  std::function<void(nn::ParameterSet&)> start{};  // runs after the initializers: weights from elsewhere
  optim::MakeOptimizer make_optimizer{};
  optim::LearningRate learning_rate{};  // the schedule of the hyperparameter of that name
  // Replaces the two members above: costs that take turns within a step, on the same batches, in this order. Each has
  // its own forward, backward, reduction and update. Hyperparameters are then called "<loss>/learning_rate" and so on.
  std::vector<CostOptions> costs{};
  // Keeps an average of replica 0's weights in separate memory. Skipped steps do not count. kUnsupported with an
  // automatic loss scale on accelerators, where the host does not know which steps are skipped.
  std::optional<optim::WeightAverageOptions> average = std::nullopt;
  std::vector<ScheduledNumber> schedules{};
  // Each step is then two passes over the same batches (optim/optimizers/sharpness_aware.h): losses, outputs and the
  // statistics of batch norms are those of the first one, gradients those of the second. On the CPU, with one cost.
  std::optional<optim::SharpnessAwareOptions> sharpness_aware{};
  StepHooks hooks{};
  void validate() const;  // throws kInvalidArgument, kUnsupported for what is not built

  // Returns `costs`, or make_optimizer and learning_rate as the only one, whose loss has no name: it is the first.
  [[nodiscard]] std::vector<CostOptions> all_costs() const;
  // Returns the name that a number has among the trainer's hyperparameters.
  [[nodiscard]] std::string hyperparameter_name(const CostOptions& cost, const std::string& name) const;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
