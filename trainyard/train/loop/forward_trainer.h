// Steps that run a model forward on the next batch of each device, one device after the other, for the speed of
// inference. Nothing is updated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/profile/step_recorder.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct ForwardOptions {
  nn::Graph graph;
  std::string executor = "auto";      // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;  // of activations
  bool frozen = false;                // variables are constants (nn::BuildContext)
  nn::KernelOptions kernels;
  std::shared_ptr<nn::Accelerator> accelerator;  // where it runs; null: the CPU
  uint64_t seed = 0;
  bool keep_outputs = false;                     // callbacks are shown each batch with its outputs
  std::function<void(nn::ParameterSet&)> start;  // after the initializers: weights from elsewhere; none: no
  // What of a checkpoint, by the beginnings of its names, the caller loads and saves itself.
  std::vector<std::string> saved_by_caller;
};

class ForwardTrainer : public Trainer {
 public:
  ForwardTrainer(ForwardOptions options, std::shared_ptr<data::BatchSource> source);

  const ForwardOptions& options() const { return options_; }
  // Steps from the next one on write what they do into `recorder`, of one replica; null: no longer. Between steps.
  void record(StepRecorder* recorder);

  // What each batch of the last step took from images to logits.
  const std::vector<double>& batch_seconds() const { return batch_seconds_; }

  // A checkpoint of a training serves, too: what it holds beside the model is kept and saved again.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  void run_step(StepView& view) override;
  void end_training() override { source_->stop(); }

 private:
  // To the end, on an accelerator. Returns the logits, valid until the next call.
  at::Tensor run_forward(const data::Batch& batch);

  ForwardOptions options_;
  std::shared_ptr<data::BatchSource> source_;
  nn::ParameterSet parameters_;
  std::unique_ptr<nn::Executor> executor_;
  core::MemoryState of_training_;
  std::vector<double> batch_seconds_;
  StepRecorder* recorder_ = nullptr;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
