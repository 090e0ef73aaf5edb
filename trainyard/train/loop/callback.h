// Callbacks: code that runs around the steps of a training. The loop of Trainer::train():
//
//   setup                              once for each callback, before anything starts
//   before_train
//   for epoch in [starting_epoch, max_epoch]:
//     before_epoch
//     for step in epoch:
//       before_step
//       (the step runs on all replicas)
//       after_step(view)
//     after_epoch                      only when all steps of the epoch have run
//     trigger_epoch                    after all callbacks had after_epoch; calls trigger(): checkpoints, evaluations
//   after_train                        also when the loop was stopped or threw
//
// The trainer calls every hook on the thread that called train(), callback by callback in the order of adding. Every
// process of a distributed training runs this loop with callbacks of its own; those with chief_only() are called on
// rank 0 only, and must not call collectives. A callback is saved with the run if it overrides save() and load(). An
// exception from a hook ends the training with an error that names the callback and the hook.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/parameter_set.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class Trainer;

// The moments at which the trainer calls its callbacks. Each entry says what has happened, and what a hook may do.
enum class Event {
  // Once for each callback, in its first train(), before the trainer's threads start; not again in later calls of
  // train(). Counters and parameters have their initial or loaded values. A hook may add callbacks and monitors, and
  // check that the trainer fits. An error is thrown before anything has begun, without after_train.
  kSetup,
  // Once in each train(), after the threads have started and before the first step. epoch() and step_in_epoch() are
  // where the run begins: not 1 and 0 in a resumed run. A hook may set hyperparameters and change parameters.
  kBeforeTrain,
  // Before the first step of each epoch, and before the first step of a run that resumes within an epoch. epoch() is
  // the new epoch, from 1.
  kBeforeEpoch,
  // Before each step. global_step() is the number of steps done, and so the number of this step from 0. The step's
  // batches may not have been read yet. A hook may set hyperparameters, which this step uses, and freeze parameters.
  kBeforeStep,
  // After each step: all replicas have updated their parameters, and global_step() and step_in_epoch() count the step.
  // The StepView holds batch, outputs, losses, gradients and times, and is valid during the call. Reading them from an
  // accelerator waits for it. A hook may call Trainer::stop(). Not called for a step that throws.
  kAfterStep,
  // After the last step of each complete epoch; not for an epoch that a stop cut short. Hooks prepare values here, such
  // as averages over the epoch, which other callbacks read in kTriggerEpoch.
  kAfterEpoch,
  // After kAfterEpoch of all callbacks. The default hook calls trigger(), in which callbacks evaluate, save checkpoints
  // and write summaries. The monitors close the epoch afterwards.
  kTriggerEpoch,
  // Once at the end of each train() whose loop has begun, also after a stop or an error. It is called on every callback
  // even if another one throws here; the first error of the training is thrown at the end. After an error of a step the
  // state is between two steps and must not be saved.
  kAfterTrain
};
// Returns the name of the hook: "before_step".
[[nodiscard]] std::string_view event_name(Event event);

// Seconds of a step of replica 0, by what they were spent on; the parts add up to `total`. An accelerator runs
// asynchronously, so the thread that measures can only separate waiting for input from all else: `compute` then
// includes communication and update.
struct StepTimes {
  double total = 0, input = 0, compute = 0, communication = 0, update = 0;
  bool on_accelerator = false;
  double waiting = 0;  // of `communication`: until all other replicas and ranks had come; the rest moves numbers
};

// What a step has left on one replica.
struct ReplicaView {
  data::Batch batch{};           // batch of the last micro-step; empty when the step has none
  core::NamedTensors outputs{};  // of the last micro-step, detached, the main output first: "logits" of a graph
  core::NamedTensors losses{};   // [] each, mean over micro-steps, without regularization, the cost first
  nn::ParameterSet* parameters = nullptr;  // values after the update, gradients as reduced
  // [] double: the optimizer has used the gradients times this factor. Undefined without a loss scale: 1.
  at::Tensor inverse_loss_scale{};

  // Return the first output and the first loss, or an undefined tensor when there is none.
  [[nodiscard]] at::Tensor output() const { return outputs.empty() ? at::Tensor() : outputs.begin()->tensor; }
  [[nodiscard]] at::Tensor loss() const { return losses.empty() ? at::Tensor() : losses.begin()->tensor; }
  // Returns the reduced gradient of a parameter, without the loss scale, in the parameter's shape; with several costs,
  // that of the last cost. It includes the regularization when the training has a hook update_pre. Throws kNotFound.
  [[nodiscard]] at::Tensor gradient(std::string_view parameter) const;
};

// What after_step() sees of a step. Valid during that call only.
struct StepView {
  int64_t global_step = 0;  // number of the step that ran, from 0
  int64_t own_step = 0;     // the same among the steps that this trainer object has run
  StepTimes times{};
  std::vector<ReplicaView> replicas{};  // empty for trainers without replicas
};

// Base class of callbacks. Override the hooks of the events that matter; all others do nothing. Event documents each
// hook: where in the loop it is called, and what it may do.
class Callback : public core::Stateful {
 public:
  // Returns the callback's name, which is unique in a trainer and the prefix of its saved state.
  [[nodiscard]] virtual std::string name() const = 0;
  // Returns true when hooks are called on the chief (rank 0) only. They must not call collectives then.
  [[nodiscard]] virtual bool chief_only() const { return false; }

  virtual void setup(Trainer&) {}
  virtual void before_train(Trainer&) {}
  virtual void before_epoch(Trainer&) {}
  virtual void before_step(Trainer&) {}
  virtual void after_step(Trainer&, const StepView&) {}
  virtual void after_epoch(Trainer&) {}
  virtual void trigger_epoch(Trainer& trainer) { trigger(trainer); }
  virtual void after_train(Trainer&) {}

  // Does the callback's periodic work: after each epoch, or at the times of a PeriodicTrigger
  // (train/callbacks/callback_wrappers.h).
  virtual void trigger(Trainer&) {}

  // Save and load what the callback needs to continue in a resumed run. The trainer puts its name in front of all
  // entries. load() is not called when the saved run has no entry of this callback.
  void save(core::StateWriter&) const override {}
  void load(const core::StateReader&) override {}
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
