// Callbacks: everything that happens around a step. The loop, drawn once:
//
//   setup                              once; add monitors, look at the trainer
//   before_train
//   for epoch in [starting_epoch, max_epoch]:
//     before_epoch
//     for step in epoch:
//       before_step
//       (the step runs, all replicas meet)
//       after_step(view)
//     after_epoch                      after the epoch's last step
//     trigger_epoch                    when all have had after_epoch; calls trigger(): checkpoints, evaluations
//   after_train                        also when the loop was stopped or threw
//
// All run on the trainer's thread. A callback is saved with the run if it overrides save and load. One that throws ends
// the training with an error that names the callback and the hook.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/parameter_set.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class Trainer;

enum class Event {
  kSetup,
  kBeforeTrain,
  kBeforeEpoch,
  kBeforeStep,
  kAfterStep,
  kAfterEpoch,
  kTriggerEpoch,
  kAfterTrain
};
std::string_view event_name(Event event);  // "before_step"

// Seconds of a step, by what held it: they add up to `total` (replica 0's). An accelerator runs behind the thread that
// takes the times, which can tell only waiting for input from all else: then compute is all that, communication and
// update included.
struct StepTimes {
  double total = 0, input = 0, compute = 0, communication = 0, update = 0;
  bool on_accelerator = false;
};

struct ReplicaView {
  data::Batch batch{};                     // of the last micro-step; without tensors where the step has none
  core::NamedTensors outputs{};            // of the last micro-step, detached, the main one first: "logits" of a graph
  core::NamedTensors losses{};             // [] each, mean over micro-steps, without regularization, the cost first
  nn::ParameterSet* parameters = nullptr;  // values after the update, gradients as reduced
  // [] double: those gradients times this are what the optimizer has used. Undefined without a loss scale, where it
  // is 1.
  at::Tensor inverse_loss_scale{};

  // Return the first of them; an undefined tensor where there is none.
  [[nodiscard]] at::Tensor output() const { return outputs.empty() ? at::Tensor() : outputs.begin()->tensor; }
  [[nodiscard]] at::Tensor loss() const { return losses.empty() ? at::Tensor() : losses.begin()->tensor; }
  // Returns the reduced gradient of a parameter, without the loss scale, in its shape; of several costs that of the
  // last. The regularization's part is in it where the training has a hook update_pre. Throws kNotFound.
  [[nodiscard]] at::Tensor gradient(std::string_view parameter) const;
};

// Valid during the call that gets it.
struct StepView {
  int64_t global_step = 0;  // of the step that ran, from 0
  StepTimes times{};
  std::vector<ReplicaView> replicas{};  // empty for trainers without replicas
};

class Callback : public core::Stateful {
 public:
  // Returns the callback's name, which is unique in a trainer and the prefix of its saved state.
  [[nodiscard]] virtual std::string name() const = 0;
  // Only on the chief (rank 0).
  virtual bool chief_only() const { return false; }

  virtual void setup(Trainer&) {}
  virtual void before_train(Trainer&) {}
  virtual void before_epoch(Trainer&) {}
  virtual void before_step(Trainer&) {}
  virtual void after_step(Trainer&, const StepView&) {}
  virtual void after_epoch(Trainer&) {}
  virtual void trigger_epoch(Trainer& trainer) { trigger(trainer); }
  virtual void after_train(Trainer&) {}

  // Does what the callback does when its period comes: after each epoch, unless a PeriodicTrigger
  // (train/callbacks/callback_wrappers.h) says otherwise.
  virtual void trigger(Trainer&) {}

  void save(core::StateWriter&) const override {}
  void load(const core::StateReader&) override {}
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
