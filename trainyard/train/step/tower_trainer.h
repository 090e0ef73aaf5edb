// Trains towers (train/step/tower.h) for one cost, or for several that take turns: replicas on threads, micro-steps, a
// VariableUpdate between them. One device, many devices and many processes differ only in the VariableUpdate
// (docs/design/architecture.md draws a step). A step is, for each micro-step of a cost:
//
//   next batches -> [input_pre] -> tower: forward, losses -> backward
//
// and then once:
//
//   [reduce_pre] -> reduce over replicas -> [update_pre] -> update
//
// Hooks, in brackets, run on the replica's thread and change only the data of that replica.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower.h"

namespace trainyard::train {
class ReplicatedStep;
struct RunMemory;  // train/devices/run_memory.h
class StepRecorder;
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {
struct LayerSparsity;
struct SparsityOptions;
}  // namespace trainyard::optim

namespace trainyard::train {

// What a training does when a step's loss or gradient is not finite (--on_nan).
enum class OnNan {
  kStop,    // the step ends with an error that names the first layer whose numbers were not finite; nothing is updated
  kSkip,    // the step is skipped: parameters, slots and statistics are unchanged; 100 such steps in a row end the run
  kIgnore,  // the update is applied; the first such step is warned about
};

// Returns the choice called "stop", "skip" or "ignore". Throws kInvalidArgument for another name.
[[nodiscard]] OnNan on_nan_from_name(std::string_view name);

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
  parallel::GradientPacking packing{};  // which gradients are reduced together; with an exchange alone
  // Whether each replica updates its part of the parameters (parallel::Sharding). Hooks that read gradients, several
  // costs and sharpness-aware minimization exclude it. Gradients that a callback reads after a step are then not those
  // that were applied.
  parallel::Sharding::Use sharded_update = parallel::Sharding::Use::kNever;
  // How gradients are compressed; with an exchange alone, on the CPU, with one cost and one pass a step.
  parallel::GradientCompression compression{};
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
  // The same network for images of other sizes than graph's, which training batches may have (GraphTowerOptions).
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
  // Each step is then two passes over the same batches (optim::SharpnessAwareOptions): losses, outputs and the
  // statistics of batch norms are those of the first one, gradients those of the second. On the CPU, with one cost.
  std::optional<optim::SharpnessAwareOptions> sharpness_aware{};
  StepHooks hooks{};
  void validate() const;  // throws kInvalidArgument, kUnsupported for what is not built

  // Returns `costs`, or make_optimizer and learning_rate as the only one, whose loss has no name: it is the first.
  [[nodiscard]] std::vector<CostOptions> all_costs() const;
  // Returns the name that a number has among the trainer's hyperparameters.
  [[nodiscard]] std::string hyperparameter_name(const CostOptions& cost, const std::string& name) const;
};

// The loss scale of replica 0: the factor of the loss (OpenDevices::loss_scale).
struct LossScale {
  double scale = 1;  // of the next step
  // Steps without overflow since the scale last moved; nullopt unless it moves (LossScalerOptions::automatic).
  std::optional<double> normal_steps{};
};

// The trainer. The towers of one trainer may get batches of different sizes and shapes; their parameters must be the
// same.
//
// Custom layers in a graph draw from ATen's default generator, which the constructor seeds and which is
// saved. On more than one replica the order of its draws is that of the threads.
//
// A step that on_nan ends leaves parameters, slots and statistics as they were before it (independent replicas whose
// own numbers were finite have updated theirs), and the source one step further. This state must not be saved.
//
// A replica that throws ends the step for all: train() throws the first error with replica and step, and the trainer
// cannot train again.
//
// StepTimes: `input` is waiting for batches, `communication` waiting for other replicas and moving gradients, `update`
// the optimizer's own work, `compute` all the rest. On an accelerator `input` counts only the waiting during which the
// accelerator had no work left. A step that is recorded for a trace waits for the accelerator at its end.
class TowerTrainer : public Trainer {
 public:
  // `source` must have options.replicas replicas. Builds the replicas' executors and initialises their parameters.
  TowerTrainer(TowerTrainerOptions options, std::shared_ptr<data::BatchSource> source);
  ~TowerTrainer() override;

  const TowerTrainerOptions& options() const { return options_; }
  // Returns whether this is the process whose callbacks print and save: rank 0 of options().ranks.
  [[nodiscard]] bool is_chief() const override;
  void progress(const std::string& operation) const override;
  // Returns the parameters that are saved, evaluated and exported.
  nn::ParameterSet& parameters();
  // Calls `change` with each replica's copy of the parameters, once if they share one. Use it to change values or to
  // set masks outside of a step. Equal copies must be equal afterwards. Call it before or after train(), or in a
  // callback between steps.
  void change_parameters(const std::function<void(nn::ParameterSet&)>& change);
  // Copies the variables of replica 0 of rank 0 to all other replicas: values, statistics, slots of the optimizer.
  // Replicas that began differently are equal from then on. Call it in a callback between steps; it is collective over
  // processes. Throws kUnsupported with the variable update "asynchronous".
  void broadcast();
  // Returns the average of the weights; null without options().average. Its weights() may be read between steps, on
  // accelerators after wait().
  [[nodiscard]] const optim::WeightAverage* average() const;
  // Calls the tower function once more, for inference on parameters(), and returns the step: it may run between steps,
  // on the thread that calls it, as long as the trainer lives. Calls after the first return the same.
  const TowerStep& inference_tower();
  data::BatchSource& source() { return *source_; }
  // Returns the first cost's learning rate in the last step, or in the next one before the first step.
  [[nodiscard]] double current_learning_rate() const;
  // Returns the replicas' mean of the first cost in the last step, before its update, with the regularization of its
  // optimizer. Reads it back, which waits for the device. Not a number before the first step.
  [[nodiscard]] double last_total_loss() const;
  // Returns the same without the regularization.
  [[nodiscard]] double last_base_loss() const;
  // Returns the loss scale of the next step; nullopt without OpenDevices::loss_scale. Waits for the device.
  [[nodiscard]] std::optional<LossScale> loss_scale() const;

  // Returns how many steps of this trainer were skipped because a loss or a gradient was not finite: on some replica,
  // where each decides for itself. Those that an automatic loss scale skips are not counted.
  [[nodiscard]] int64_t skipped_steps() const;

  // Freezes (false) or thaws the parameters that `pattern` names (core::matches_pattern), on all replicas from the next
  // step on: "layer1.*". A frozen parameter and its slots keep their bits, a batch norm whose parameters are all frozen
  // uses its statistics and keeps them, and the backward stops where nothing below trains. Saved with the run. Call it
  // between steps; where several processes train together, each must do the same. Throws kNotFound, with names that are
  // near, when there is no such parameter, kUnsupported on accelerators.
  void set_trainable(const std::string& pattern, bool trainable) override;
  // Returns the names of the parameters that are frozen, by segment.
  [[nodiscard]] std::vector<std::string> frozen_parameters() override;

  // Makes the steps from the next one on write what they do into `recorder`, which has options().replicas replicas and
  // outlives them. Null ends it. Call it between steps.
  void record(StepRecorder* recorder);

  // Blocks until the devices have done the replicas' work and exchanges, and throws their errors. Call it between
  // steps, before reading parameters(), except in save().
  void wait();

  // Returns the memory that the run needs, as it was logged before its first step; nullopt before that.
  const std::optional<RunMemory>& memory() const;

  friend RunMemory plan_memory(TowerTrainer& trainer, int64_t batch);
  friend bool gathers_state(const TowerTrainer& trainer);
  friend void gather_state(TowerTrainer& trainer);
  friend std::optional<parallel::GradientBytes> gradient_bytes(const TowerTrainer& trainer);

  // Saves the trainer's own state, and "model/...", "optimizer/...", "input/epoch", "input/offset", "random/aten_cpu",
  // "kernels/choices", "loss_scaler/...", "average/..." where there is one, "trainer/frozen" where a parameter is. A
  // checkpoint without kernels, a loss scaler or an average lets the run begin with new ones; an average that this run
  // does not continue is left out. Both are warned of.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  void run_step(StepView& view) override;
  std::optional<std::string> end_before_step() override;
  void begin_training() override;
  void end_training() override;

 private:
  TowerTrainerOptions options_;
  std::shared_ptr<data::BatchSource> source_;
  std::unique_ptr<ReplicatedStep> step_;
};

// Returns the memory that the run of `trainer` would need with batches of this many images per device. The part of the
// program and the input is 0, and that of executors which do not plan their memory is missing. Allocates no memory for
// activations. Call it outside of train(). Kernels are chosen as for a step: with ConvolutionPolicy::kAuto they are
// measured.
[[nodiscard]] RunMemory plan_memory(TowerTrainer& trainer, int64_t batch);

// Returns true when processes that train together keep something of their own that belongs to a checkpoint: what the
// compression of gradients has lost. The same on all ranks.
[[nodiscard]] bool gathers_state(const TowerTrainer& trainer);
// Collects it in rank 0's process, where save() finds it until the next step. Collective over processes; call it in a
// callback between steps. A TrainingSession does so before its checkpoints.
void gather_state(TowerTrainer& trainer);
// Returns the bytes of gradients that replica 0 has exchanged in a compressed form; nullopt without compression.
[[nodiscard]] std::optional<parallel::GradientBytes> gradient_bytes(const TowerTrainer& trainer);

// Prunes the parameters of all replicas to 2:4 sparsity and returns the result: training with 2:4 sparsity, as in
// PaddlePaddle's ASP, prunes the initial weights once and keeps their masks (optim/sparsity/prune.h). When some have a
// mask already, does nothing and returns an empty result: a resumed training keeps the masks of its checkpoint. Call it
// after loading, before train(). The trainer's tower is a graph. Throws what optim::sparse_layers() and optim::prune()
// throw, and kInvalidArgument for a model without any weight to prune.
std::vector<optim::LayerSparsity> prune_training(TowerTrainer& trainer, const optim::SparsityOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
