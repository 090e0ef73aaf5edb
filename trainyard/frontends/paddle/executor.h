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
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/switched_source.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

struct ExecutorOptions {
  at::ScalarType dtype = at::kFloat;               // kDouble for numerical tests: not with AMP
  uint64_t seed = 0;                               // of the parameters and of what layers draw
  int intra_op_threads = 0;                        // all places together; 0: the cores that this process may use
  std::vector<core::ThreadPlacement> placement{};  // one a place; empty: anywhere
};

// Values by the names of a program's feeds.
using Feed = core::NamedTensors;

// One thread at a time.
class Executor {
 public:
  // `places` are devices as in shared/device_names.h. Each trains on batches of its own, and gradients are averaged.
  // Throws as read_device_names() and train::open_devices() do, and kInvalidArgument where mpirun or srun has started
  // several processes, which would not train together.
  explicit Executor(const std::vector<std::string>& places = {"cpu:0"}, ExecutorOptions options = {});
  ~Executor();

  // Initializes the parameters of all programs that were built with this startup program. Once: throws
  // kInvalidArgument for a second time, and for a program that initializes nothing.
  void run(const Program& startup);

  // Runs a step of `program` on the feed, and returns what fetch_list names, in its order: scalars, and "label" [N]. A
  // training program updates its parameters, with the rate that its LrScheduler has; several places share the feed's
  // samples evenly. Throws kInvalidArgument for a program whose startup program has not run, for a feed that is missing
  // or of another shape or type, with program, feed, and both forms, and kNotFound for an unknown fetch.
  std::vector<at::Tensor> run(const Program& program, const Feed& feed, const std::vector<std::string>& fetch_list);

  // Makes each running and later epoch of run() (run.h) end after the step that it is in.
  void set_stop(core::StopToken stop);
  bool stopping() const { return stop_ && stop_->stop_requested(); }

  // Returns the parameters. Throws kInvalidArgument before a startup program has run.
  nn::ParameterSet& scope();
  // Runs `steps` on the batches of `source`, and calls `on_step` after each. For run() (run.h).
  using OnStep = std::function<void(const train::StepView& step)>;
  void train(const Program& program, std::shared_ptr<data::BatchSource> source, const train::LoopOptions& steps,
             const OnStep& on_step);
  // Returns the steps of the epoch that train() has run last, in this run or in the one that was loaded; 0: none.
  [[nodiscard]] int64_t steps_per_epoch() const;
  // Return what runs the program, for saving, looking inside and measuring. Throw as run() does.
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
  nn::AcceleratorScope on_devices_;  // as long as this lives, the thread's work goes there
  std::optional<core::StopToken> stop_;
  std::shared_ptr<Program::Body> startup_;  // that has run
  std::shared_ptr<data::SwitchedSource> source_;
  std::unique_ptr<train::TowerTrainer> trainer_;
  std::shared_ptr<StepHook> hook_;                // of trainer_
  std::unique_ptr<nn::ParameterSet> parameters_;  // where there is no trainer
  std::map<std::shared_ptr<Program::Body>, std::unique_ptr<train::Evaluator>> evaluators_;
};

// Makes the weights of the training program 2:4 by `mask_algo` (optim/sparsity/mask_algorithm.h), but for the layer
// that gives the logits; the masks hold from then on. Where there are masks already, as after a checkpoint was loaded,
// these stay. Throws what train::prune_training() throws.
std::vector<optim::LayerSparsity> prune_model(Executor& exe, const Program& program, const std::string& mask_algo);

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
