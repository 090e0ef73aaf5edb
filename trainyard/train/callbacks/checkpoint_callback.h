// Saves checkpoints of the trainer: every so many steps or seconds, after selected steps, and at the end of a run, also
// of one that a signal stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {
class LocalSteps;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct CheckpointCallbackOptions {
  CheckpointIdentity identity{};
  int64_t save_steps = 0;   // 0: off; else after every so many steps, counted from the end of the warm-up
  double save_seconds = 0;  // 0: off
  // Returns whether to save after so many steps, 1 or more, counted as for save_steps. Empty: only save_steps decides.
  std::function<bool(int64_t steps_done)> due{};
  int64_t warmup_steps = 0;    // excluded from the count of steps
  bool over_all_runs = false;  // count the steps of all runs instead: the global step
  bool each_epoch = false;     // also after each epoch, after the callbacks before this one
  bool save_at_end = true;
  bool non_finite_is_error = true;                // false: warns instead of throwing NonFiniteState
  std::shared_ptr<const core::Stateful> state{};  // object to save; null: the trainer
  std::function<double()> clock{};                // seconds; default: a steady clock
  void validate() const;                          // throws kInvalidArgument
};

// Saves the trainer's state. Add it last, so that other callbacks save their state after the step. When a step throws,
// nothing is saved at the end, because the state is then between two steps.
class CheckpointCallback : public Callback {
 public:
  CheckpointCallback(CheckpointStore store, CheckpointCallbackOptions options);

  std::string name() const override { return "checkpoint"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger_epoch(Trainer& trainer) override;
  void after_train(Trainer& trainer) override;

  // Returns the last saved checkpoint.
  const std::optional<CheckpointInfo>& last_saved() const { return last_saved_; }

 private:
  void save_now(const Trainer& trainer);

  CheckpointStore store_;
  CheckpointCallbackOptions options_;
  std::shared_ptr<LocalSteps> local_steps_;
  double last_time_ = 0;
  std::optional<CheckpointInfo> last_saved_;
  bool in_step_ = false;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
