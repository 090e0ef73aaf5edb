// Records some steps of a run and passes them to a function. For --trace_file, --tfprof_file and bench layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/local_steps.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

struct Recording {
  int64_t first_step = 0;  // a local step: the warm-up's are negative
  int64_t steps = 1;
  // Called after the last of these steps, or at the end of a run that has fewer, but at least one of them. Not called
  // when one failed.
  std::function<void(std::span<const StepRecord>)> done;
};

struct RecordingOptions {
  int64_t warmup_steps = 0;
  int replicas = 1;
  std::shared_ptr<nn::Accelerator> accelerator;  // device of the steps, whose kernels are recorded, too; null: the CPU
  std::function<void(StepRecorder*)> record;     // the trainer's record()
  std::vector<Recording> recordings;             // may overlap
};

class RecordingCallback : public Callback {
 public:
  explicit RecordingCallback(RecordingOptions options)
      : options_(std::move(options)), local_steps_(options_.warmup_steps) {}

  std::string name() const override { return "recording"; }
  void before_train(Trainer& trainer) override { local_steps_.begin(trainer); }
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

 private:
  bool wanted(int64_t local_step) const;
  void deliver(const Recording& recording) const;
  void stop();

  RecordingOptions options_;
  LocalSteps local_steps_;
  std::unique_ptr<StepRecorder> recorder_;
  int64_t begin_ = 0, end_ = 0;  // local steps that are recorded completely
};

}  // namespace trainyard::train
