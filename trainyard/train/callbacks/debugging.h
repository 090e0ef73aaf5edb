// Callbacks that help to find what is wrong with a training: they end it when a step takes too long or a number is not
// finite, and write tensors of steps into files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Ends the training with kTimeout when a step takes longer than a limit. The error names the step and is logged at
// once, because a step is not interrupted: the training ends when the step ends. `wake` makes a waiting step end: it
// stops a source of batches, or aborts a communicator. The time is measured from this callback's before_step to its
// after_step. A thread watches while train() runs.
class SessionRunTimeout : public Callback {
 public:
  // `wake` is called on the watching thread; it may be empty. Throws kInvalidArgument for a limit that is not above
  // zero.
  explicit SessionRunTimeout(std::chrono::milliseconds limit, std::function<void()> wake = {});
  ~SessionRunTimeout() override;  // ends the thread

  std::string name() const override { return "session_run_timeout"; }
  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

 private:
  class Watcher;
  std::chrono::milliseconds limit_;
  std::function<void()> wake_;
  std::unique_ptr<Watcher> watcher_;
};

// Ends the training with kCorruptData, which names the tensor, when a loss is not finite after a step, or when a
// parameter or a buffer is not finite at a trigger. Checking waits for the device.
class CheckNumerics : public Callback {
 public:
  // `parameters` must outlive it; null: only losses are checked.
  explicit CheckNumerics(const nn::ParameterSet* parameters = nullptr) : parameters_(parameters) {}

  std::string name() const override { return "check_numerics"; }
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger(Trainer& trainer) override;

 private:
  const nn::ParameterSet* parameters_;
};

// Writes <directory>/step-<global step>.safetensors after each step, from replica 0, for other programs; wrap it in a
// PeriodicCallback to select steps. Names are parameters (their values after the update), "<parameter>/gradient" (as
// reduced), outputs and losses: "logits", "cost". Numbers are written as float32.
class DumpTensors : public Callback {
 public:
  // Throws kInvalidArgument for an empty list. An unknown name ends the training with kNotFound.
  DumpTensors(std::string directory, std::vector<std::string> names,
              core::FileSystem& files = core::local_file_system());

  std::string name() const override { return "dump_tensors"; }
  bool chief_only() const override { return true; }
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  std::string directory_;
  std::vector<std::string> names_;
  core::FileSystem* files_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
