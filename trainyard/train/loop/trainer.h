// The loop and nothing else: epochs, steps, callbacks around them. It assumes no batches, models or gradients; what a
// step is, a subclass says. SingleCostTrainer (single_cost_trainer.h) is the one that trains a graph.
//
//   class Counter : public train::Trainer { void run_step(StepView&) override { ++count; } ... };
//   Counter trainer;
//   trainer.add(std::make_shared<MyCallback>());
//   trainer.train({.steps_per_epoch = 100, .max_epoch = 3});
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {

struct LoopOptions {
  int64_t steps_per_epoch = 0;
  int64_t starting_epoch = 1;  // counted from 1, inclusive
  int64_t max_epoch = 1;       // inclusive
  int64_t starting_step = 0;   // in the first epoch: where a resumed run goes on
  void validate() const;       // throws kInvalidArgument
};

class Trainer : public core::Stateful {
 public:
  ~Trainer() override = default;

  // Before train(), or in a callback's setup. Run in the order of adding, after_* hooks too. A second one of the same
  // name: kInvalidArgument.
  void add(std::shared_ptr<Callback> callback);
  // Asks for the end of all later train() too. More than one may be set.
  void set_stop_token(core::StopToken token);

  // Runs the loop until its end, or until stop is asked for, which is looked at between steps. An exception of a step
  // or a callback ends the loop, runs after_train of all callbacks, and is thrown as core::Error with epoch and step
  // (from 1) in front. A starting_step equal to steps_per_epoch begins with the next epoch, so a run goes on by
  // starting_epoch = epoch(), starting_step = step_in_epoch() after load().
  void train(const LoopOptions& options);

  int64_t global_step() const { return global_step_; }      // steps done, over all runs
  int64_t epoch() const { return epoch_; }                  // from 1
  int64_t step_in_epoch() const { return step_in_epoch_; }  // steps done in this epoch
  const LoopOptions& loop() const { return loop_; }
  // Ends the running train() after this step; any thread may ask for it.
  void stop(const std::string& reason);
  bool stopping() const;
  // Why the last train() ended before its end; empty when it did not.
  const std::string& stop_reason() const { return stop_reason_; }

  // The same numbers to all: console, files, TensorBoard.
  MonitorSet& monitors() { return monitors_; }
  virtual bool is_chief() const { return true; }

  // "trainer/<counter>" and "callback/<name>/..."; subclasses add what continues a run, after calling these.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  // One step: fills what it has of `view` (times at least).
  virtual void run_step(StepView& view) = 0;
  // Around train(), after the callbacks' setup: subclasses start and end their threads. A begin_training() that throws
  // undoes what it has done: end_training() is not called for it.
  virtual void begin_training() {}
  virtual void end_training() {}

 private:
  void notify(Callback& callback, Event event, const StepView* view = nullptr);
  void notify_all(Event event, const StepView* view = nullptr);
  void run_loop();
  bool begin_epoch();
  void one_step();
  void note_stop_reason();

  std::vector<std::shared_ptr<Callback>> callbacks_;
  size_t callbacks_set_up_ = 0;
  bool training_ = false;
  MonitorSet monitors_;
  LoopOptions loop_;
  core::StopSource own_stop_;
  std::vector<core::StopToken> stop_tokens_;
  std::string stop_reason_;
  int64_t global_step_ = 0, epoch_ = 1, step_in_epoch_ = 0;
};

}  // namespace trainyard::train
