// Steps that run a model forward on the next batch of each device, all devices at the same time, for the speed of
// inference. Nothing is updated. Of several processes, each runs its own batches with rank 0's parameters.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/replica_threads.h"

namespace trainyard::train {

struct ForwardOptions {
  nn::Graph graph;
  OpenDevices devices{};  // those of the run: the model runs on the first accelerator, or on the CPU
  bool frozen = false;    // variables are constants (nn::BuildContext)
  uint64_t seed = 0;
  bool keep_outputs = false;  // the StepView has each batch with its outputs
  std::function<void(nn::ParameterSet&)>
      start;  // called after the initializers, to load weights; empty: weights stay as initialized
  // Entries of a checkpoint, by prefix, that the caller loads and saves itself.
  std::vector<std::string> saved_by_caller;
  // Threads that are the devices, each with an executor of its own on the one parameter set: one for each batch that
  // the source gives at once (replica_thread_options() in evaluator.h). Empty: the calling thread is the only device.
  std::vector<core::ThreadOptions> replicas{};
  // The scales by which the graph computes in 8 bits, with `frozen`. Null: in float.
  std::shared_ptr<const nn::Quantization> quantization{};
};

class ForwardTrainer : public Trainer {
 public:
  // Collective over the processes of options.devices.
  ForwardTrainer(ForwardOptions options, std::shared_ptr<data::BatchSource> source);

  const ForwardOptions& options() const { return options_; }
  // Prepares for batches of this size, as the first step would. Returns the memory that a device needs in addition to
  // the parameters, or nullopt when that is not known beforehand.
  std::optional<nn::ExecutorMemory> prepare(int64_t batch);
  // Returns the parameters that all devices compute with.
  nn::ParameterSet& parameters() { return parameters_; }
  // Makes the steps from the next one on write into `recorder`, which has as many replicas as there are devices. Null
  // ends it. Call it between steps.
  void record(StepRecorder* recorder);

  // Returns the seconds that each batch of the last step took from images to logits, in the order of the devices.
  const std::vector<double>& batch_seconds() const { return batch_seconds_; }

  // Also loads a training's checkpoint: its other entries are kept and saved again.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  void run_step(StepView& view) override;
  void end_training() override { source_->stop(); }

 private:
  // Copies rank 0's parameters to all processes.
  void take_parameters_of_first();
  // Runs the model, and waits for an accelerator. Returns the logits, valid until the next call.
  at::Tensor run_forward(const data::Batch& batch, nn::Executor& executor);

  ForwardOptions options_;
  std::shared_ptr<data::BatchSource> source_;
  nn::ParameterSet parameters_;
  std::vector<std::unique_ptr<nn::Executor>> executors_;  // one a device
  std::unique_ptr<ReplicaThreads> threads_;               // null: the calling thread
  core::MemoryState of_training_;
  std::vector<double> batch_seconds_;
  StepRecorder* recorder_ = nullptr;
};

}  // namespace trainyard::train
