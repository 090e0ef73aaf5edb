// Runs programs (program.h): holds the parameters that they share by name, and the devices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::data {
class SwitchedSource;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

struct ExecutorOptions {
  at::ScalarType dtype = at::kFloat;               // kDouble for numerical tests: not with AMP
  uint64_t seed = 0;                               // seed of the parameters and of random layers
  int intra_op_threads = 0;                        // of all places together; 0: the cores that this process may use
  std::vector<core::ThreadPlacement> placement{};  // one a place; empty: anywhere
};

// Values by the names of a program's feeds.
using Feed = core::NamedTensors;

// One thread at a time.
class Executor {
 public:
  // `places` are devices as in options/device_names.h. Each trains on its own batches, and gradients are averaged.
  // Throws as read_device_names() and train::open_devices() do, and kInvalidArgument when mpirun or srun has started
  // several processes, which would not train together.
  explicit Executor(const std::vector<std::string>& places = {"cpu:0"}, ExecutorOptions options = {});
  // Runs on devices that were opened, with the processes that they name: each has its own executor, with the same
  // programs, and gradients are averaged over all places.
  explicit Executor(train::OpenDevices devices, ExecutorOptions options = {});
  ~Executor();

  // Initializes the parameters of all programs that were built with this startup program. Call it once: throws
  // kInvalidArgument for a second call, and for a program that initializes nothing.
  void run(const Program& startup);

  // Runs a step of `program` on the feed, and returns the values in fetch_list, in order: scalars, and "label" [N]. A
  // training program updates its parameters with the rate of its LrScheduler; several places share the feed's samples
  // evenly. Throws kInvalidArgument for a program whose startup program has not run, for a feed that is missing or of
  // another shape or type, with program, feed, and both forms, and kNotFound for an unknown fetch.
  std::vector<at::Tensor> run(const Program& program, const Feed& feed, const std::vector<std::string>& fetch_list);

  // Makes `stop` end each current and later epoch of run() (run.h) after its current step.
  void set_stop(core::StopToken stop);
  bool stopping() const { return stop_ && stop_->stop_requested(); }

  // Returns the parameters. Throws kInvalidArgument before a startup program has run.
  nn::ParameterSet& scope();
  // Runs `steps` on the batches of `source`, and calls `on_step` after each. For run() (run.h).
  using OnStep = std::function<void(const train::StepView& step)>;
  void train(const Program& program, std::shared_ptr<data::BatchSource> source, const train::LoopOptions& steps,
             const OnStep& on_step);
  // Returns the steps of the last epoch of train(), in this run or in the loaded one; 0: none.
  [[nodiscard]] int64_t steps_per_epoch() const;
  // Return the trainer and evaluator of the program, for saving, inspection and measurements. Throw as run() does.
  train::TowerTrainer& trainer(const Program& program);
  train::Evaluator& evaluator(const Program& program);
  const train::OpenDevices& device() const { return device_; }

 private:
  class StepHook;
  void require_ready(const Program& program) const;
  void make_trainer(const Program::Body& main);
  void train_steps(const train::LoopOptions& steps, const OnStep& on_step);
  std::vector<data::Batch> batches_of(const Program& program, const Feed& feed) const;

  ExecutorOptions options_;
  int places_ = 1;
  train::OpenDevices device_;
  nn::AcceleratorScope on_devices_;  // directs the thread's work to the devices
  std::optional<core::StopToken> stop_;
  std::shared_ptr<Program::Body> startup_;  // startup program that has run
  std::shared_ptr<data::SwitchedSource> source_;
  std::unique_ptr<train::TowerTrainer> trainer_;
  std::shared_ptr<StepHook> hook_;                // of trainer_
  std::unique_ptr<nn::ParameterSet> parameters_;  // when there is no trainer
  std::map<std::shared_ptr<Program::Body>, std::unique_ptr<train::Evaluator>> evaluators_;
};

// Makes the weights of the training program 2:4 by `mask_algo` (optim/sparsity/mask_algorithm.h), except for the layer
// of the logits; the masks are kept from then on. Existing masks, such as those of a loaded checkpoint, are kept
// instead. Throws what train::prune_training() throws.
std::vector<optim::LayerSparsity> prune_model(Executor& exe, const Program& program, const std::string& mask_algo);

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
