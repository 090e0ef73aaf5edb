// The training loop: epochs, steps and the callbacks around them. It does not know batches, models or gradients; a
// subclass implements the step. TowerTrainer (train/step/tower_trainer.h) trains a graph.
//
//   class Counter : public train::Trainer { void run_step(StepView&) override { ++count; } ... };
//   Counter trainer;
//   trainer.add(std::make_shared<MyCallback>());
//   trainer.train({.steps_per_epoch = 100, .max_epoch = 3});
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/optim/hyperparameters.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/monitors/monitor.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// How a training loop is ended before its last step: by a call, by tokens such as that of a signal, by an agreement of
// several processes, or by an error that something outside of the loop has found.
class Stoppable {
 public:
  // Sets a token that ends the running train() and all later ones. More than one may be set.
  void set_stop_token(core::StopToken token);
  // Ends the running train() after this step. Any thread may call it.
  void stop(const std::string& reason);
  // Returns whether the training ends after this step, or has ended early.
  [[nodiscard]] bool stopping() const;
  // When several processes train together, none may end alone: after this call stop() and the tokens only propose the
  // end, and agree_to_stop() ends the training. An error still ends it at once. Call it before train().
  void stop_by_agreement() { by_agreement_ = true; }
  // Returns the token that has requested a stop in this process, or nullopt.
  [[nodiscard]] std::optional<core::StopToken> requested_stop() const;
  void agree_to_stop(core::StopReason why, const std::string& message);
  // Ends the running train() after this step with `error`, also where the step itself throws another one. The first
  // error is kept. Any thread may call it, such as one that watches the training.
  void fail(const core::Error& error);
  // Returns why the last train() was stopped; empty when it was not.
  const std::string& stop_reason() const { return stop_reason_; }
  // Returns whether that was a signal, of this process or of another one that trains with it.
  [[nodiscard]] bool stopped_by_signal() const { return stopped_by_signal_; }

 protected:
  Stoppable() = default;
  ~Stoppable() = default;
  // Forgets why an earlier train() ended. Called at the beginning of train().
  void begin_stoppable();
  // Keeps why the loop ends, for stop_reason() and stopped_by_signal(). Called at its end.
  void note_stop_reason();
  // Returns the first error that fail() was given in this train().
  [[nodiscard]] std::optional<core::Error> failure() const;
  bool stops_by_agreement() const { return by_agreement_; }

 private:
  core::StopSource own_stop_, agreed_stop_;
  bool by_agreement_ = false, stopped_by_signal_ = false;
  std::vector<core::StopToken> stop_tokens_;
  std::string stop_reason_;
  mutable std::mutex failure_mutex_;
  std::optional<core::Error> failure_;
};

// How many steps a trainer has done.
class StepCount {
 public:
  int64_t global_step() const { return global_step_; }  // over all runs
  int64_t own_steps() const { return own_steps_; }      // of this object
  // Lets the global step count the steps of other processes, too, as workers with parameter servers do: after each step
  // it becomes what `count` returns, which gets what it was before. Default: one more. Call it before train().
  void count_global_steps(std::function<int64_t(int64_t before)> count) { count_ = std::move(count); }
  // Sets the global step, between steps: to what all processes have done.
  void set_global_step(int64_t global_step) { global_step_ = global_step; }

 protected:
  StepCount() = default;
  ~StepCount() = default;
  // Counts a step that has run.
  void count_step() {
    global_step_ = count_ ? count_(global_step_) : global_step_ + 1;
    ++own_steps_;
  }

 private:
  int64_t global_step_ = 0, own_steps_ = 0;
  std::function<int64_t(int64_t before)> count_;  // empty: one more
};

struct LoopOptions {
  int64_t steps_per_epoch = 0;
  int64_t starting_epoch = 1;  // counted from 1, inclusive
  int64_t max_epoch = 1;       // inclusive
  int64_t starting_step = 0;   // first step of the first epoch: where a resumed run continues
  void validate() const;       // throws kInvalidArgument
};

class Trainer : public core::Stateful, public Stoppable, public StepCount {
 public:
  ~Trainer() override = default;

  // Adds a callback, before train() or in a callback's setup. Callbacks run in the order of adding; so do their after_*
  // hooks. Throws kInvalidArgument for null, for a second one of the same name, and while train() runs.
  void add(std::shared_ptr<Callback> callback);
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, std::shared_ptr<Callback>>) void add(Wrong&&) {
    static_assert(core::kRightType<Wrong>,
                  "Trainer::add() takes a std::shared_ptr to a class that derives publicly from train::Callback, as "
                  "std::make_shared<MyCallback>() makes it");
  }

  // Runs the loop until its end, or until a stop is requested, which is checked between steps. An exception of a step
  // or a callback ends the loop, runs after_train of all callbacks, and is thrown as core::Error with epoch and step
  // (from 1) in front. An exception of a callback's setup is thrown before anything has begun, without after_train.
  //
  // A starting_step equal to steps_per_epoch begins with the next epoch. So a run resumes, after load(), with
  // starting_epoch = epoch() and starting_step = step_in_epoch().
  void train(const LoopOptions& options);

  int64_t epoch() const { return epoch_; }                  // from 1
  int64_t step_in_epoch() const { return step_in_epoch_; }  // steps done in this epoch
  const LoopOptions& loop() const { return loop_; }
  // Returns whether the last step of this train() has thrown: the parameters may be those of a part of it, which is not
  // to be saved or evaluated.
  [[nodiscard]] bool step_failed() const { return step_failed_; }

  // Freezes (false) or unfreezes the parameters that match `pattern`, from the next step on. For callbacks, between
  // steps. Trainers with parameters override this and frozen_parameters(); TowerTrainer documents what freezing does.
  // Throws kNotFound when no parameter matches, kUnsupported when the trainer has no parameters to freeze.
  virtual void set_trainable(const std::string& pattern, bool trainable);
  // Returns the names of the parameters that are frozen.
  [[nodiscard]] virtual std::vector<std::string> frozen_parameters() { return {}; }

  // Returns the named numbers that steps read: a TowerTrainer's "learning_rate" and those of its optimizer, and any
  // that the program adds before train(). Callbacks may set them; the next step uses the new values. When several
  // processes train together, each must set the same.
  optim::Hyperparameters& hyperparameters() { return hyperparameters_; }
  const optim::Hyperparameters& hyperparameters() const { return hyperparameters_; }

  // Returns the monitors, which all get the same numbers: JSON lines, CSV, TensorBoard.
  MonitorSet& monitors() { return monitors_; }
  virtual bool is_chief() const { return true; }
  // Tells the other processes what this one does now ("save"): they report it when this process makes no progress.
  virtual void progress(const std::string&) const {}

  // Saves "trainer/<counter>", "trainer/hyperparameters/<name>" of those that were set by hand,
  // "trainer/monitors/<name>", and "callback/<name>/...". Subclasses call this first, then add their own state.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  // Runs one step, and fills `view`, at least its times.
  virtual void run_step(StepView& view) = 0;
  // Called before each step and the callbacks' before_step(). Returns why there is no further step, and the training
  // ends as after stop(), between two steps; or nothing, and the step runs.
  [[nodiscard]] virtual std::optional<std::string> end_before_step() { return std::nullopt; }
  // Called around train(), after the callbacks' setup: subclasses start and end their threads. A begin_training() that
  // throws undoes what it has done; end_training() is not called for it.
  virtual void begin_training() {}
  virtual void end_training() {}

 private:
  void notify(Callback& callback, Event event, const StepView* view = nullptr);
  void notify_all(Event event, const StepView* view = nullptr);
  void run_loop();
  bool begin_epoch();
  // Runs one step, or ends the training when end_before_step() returns a reason.
  void one_step();

  std::vector<std::shared_ptr<Callback>> callbacks_;
  size_t callbacks_set_up_ = 0;
  bool training_ = false, step_failed_ = false;
  MonitorSet monitors_;
  optim::Hyperparameters hyperparameters_;
  LoopOptions loop_;
  int64_t epoch_ = 1, step_in_epoch_ = 0;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
