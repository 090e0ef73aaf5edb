// Callbacks that save checkpoints. Add them last, so that other callbacks save their state after the step or the epoch.
// CheckpointCallback saves every so many steps or seconds and at the end of a run; the savers, with the names of
// Tensorpack, save when they are triggered.
//
//   trainer.add(std::make_shared<ModelSaver>(CheckpointStore("out/run1", 10)));
//   trainer.add(std::make_shared<MaxSaver>("val/top_1_accuracy", CheckpointStore("out/run1")));   // out/run1/best
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {
class BestKeeper;       // train/checkpoint/best_checkpoint.h
class CheckpointQueue;  // train/checkpoint/checkpoint_queue.h
class LocalSteps;
class SavingTime;  // train/checkpoint/saving_time.h
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct CheckpointCallbackOptions {
  CheckpointIdentity identity{};
  int64_t save_steps = 0;   // 0: off; else after every so many steps, counted from the end of the warm-up
  double save_seconds = 0;  // 0: off
  // Returns whether to save after so many steps, 1 or more, counted as for save_steps. Empty: only save_steps decides.
  std::function<bool(int64_t steps_done)> due{};
  bool due_is_each_epoch = false;  // `due` is limited as each_epoch is: steps are left out where saving takes too long
  int64_t warmup_steps = 0;        // excluded from the count of steps
  bool over_all_runs = false;      // count the steps of all runs instead: the global step
  // Also after each epoch, after the callbacks before this one, unless the last checkpoint took more than a twentieth
  // of the time since it began.
  bool each_epoch = false;
  bool save_at_end = true;
  std::function<void()> before_save{};  // called before each checkpoint; may be empty
  // Writes checkpoints in the background, from copies of the state. Errors are thrown after a later step, or at the end
  // of the run, which waits until all is written. Null: the training waits for each checkpoint.
  std::shared_ptr<CheckpointQueue> queue{};
  bool non_finite_is_error = true;                // false: warns instead of throwing NonFiniteState
  std::shared_ptr<const core::Stateful> state{};  // object to save; null: the trainer
  std::function<double()> clock{};                // seconds; default: a steady clock
  // Returns whether the state has changed since it was last saved although no step has run: it is saved again at the
  // end. Empty: it does not.
  std::function<bool()> changed{};
  void validate() const;  // throws kInvalidArgument
};

// Saves the trainer's state: every so many steps or seconds, after selected steps, and at the end of a run, also of one
// that a signal stopped. Add it last, so that other callbacks save their state after the step. When a step throws,
// nothing is saved at the end, because the state is then between two steps. With a queue, what has been saved is
// durable when train() has returned, and when last_saved() says so.
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

  // Return whether after_step(), trigger_epoch() and after_train() are going to save. For a callback before this one;
  // what saves_after() says, by the time that has passed, stays so for that step.
  [[nodiscard]] bool saves_after(const StepView& view);
  [[nodiscard]] bool saves_each_epoch() const { return options_.each_epoch; }
  [[nodiscard]] bool saves_at_end(const Trainer& trainer) const;

  // Returns the last saved checkpoint, which is durable.
  const std::optional<CheckpointInfo>& last_saved() const { return last_saved_; }

 private:
  struct Writes;

  // Returns whether saving after each epoch takes its part of the time only.
  [[nodiscard]] bool time_allows();
  void save_now(const Trainer& trainer);
  [[nodiscard]] bool queue_copy(const Trainer& trainer);
  void settle();

  CheckpointStore store_;
  CheckpointCallbackOptions options_;
  std::shared_ptr<LocalSteps> local_steps_;
  std::shared_ptr<SavingTime> time_;
  std::shared_ptr<Writes> writes_;  // in the background
  double last_time_ = 0;
  std::optional<CheckpointInfo> last_saved_;
  std::optional<bool> saves_;  // what saves_after() has said of the step that has ended
  bool in_step_ = false;
};

struct SaverOptions {
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // object to save; null: the trainer
};

// Saves a checkpoint after each epoch, or at the times of a PeriodicTrigger. The store decides how many are kept.
class ModelSaver : public Callback {
 public:
  explicit ModelSaver(CheckpointStore store, SaverOptions options = {});
  std::string name() const override { return "model_saver"; }
  bool chief_only() const override { return true; }
  void trigger(Trainer& trainer) override;

 private:
  CheckpointStore store_;
  SaverOptions options_;
};

// Keeps the checkpoint with the best value of a monitors' statistic, as "best" in the store's directory, over all runs
// there (BestKeeper). Add it after the callback that writes the statistic. Does nothing when the statistic has no new
// value, and warns once when it has never had one. Two of these callbacks need two directories.
class BestSaver : public Callback {
 public:
  std::string name() const override { return name_; }
  bool chief_only() const override { return true; }
  // Throws what BestKeeper's constructor throws.
  void setup(Trainer& trainer) override;
  void trigger(Trainer& trainer) override;
  void after_train(Trainer& trainer) override;

  // Returns the best of all runs, or nothing before the first.
  [[nodiscard]] std::optional<BestCheckpoint> best() const;

 protected:
  BestSaver(std::string name, BestBy by, CheckpointStore store, SaverOptions options);

 private:
  std::string name_;
  BestBy by_;
  CheckpointStore store_;
  SaverOptions options_;
  std::shared_ptr<BestKeeper> keeper_;
  std::optional<int64_t> offered_;  // global step of the last value
  bool warned_ = false;
};

// Keeps the checkpoint with the lowest value of a statistic, a name of MonitorSet::history(): "val/loss".
class MinSaver : public BestSaver {
 public:
  MinSaver(const std::string& statistic, CheckpointStore store, SaverOptions options = {});
};

// Keeps the checkpoint with the highest value.
class MaxSaver : public BestSaver {
 public:
  MaxSaver(const std::string& statistic, CheckpointStore store, SaverOptions options = {});
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
