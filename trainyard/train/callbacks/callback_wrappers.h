// Callbacks around callbacks: when another one is called. Names and meaning as in Tensorpack. A wrapper has the name
// and the saved state of the callback in it, so a checkpoint fits with and without the wrapper.
//
//   trainer.add(std::make_shared<PeriodicTrigger>(saver, Period{.every_k_epochs = 5}));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Passes every hook on to the callback in it.
class CallbackWrapper : public Callback {
 public:
  std::string name() const override { return inner_->name(); }
  bool chief_only() const override { return inner_->chief_only(); }

  void setup(Trainer& trainer) override { inner_->setup(trainer); }
  void before_train(Trainer& trainer) override { inner_->before_train(trainer); }
  void before_epoch(Trainer& trainer) override { inner_->before_epoch(trainer); }
  void before_step(Trainer& trainer) override { inner_->before_step(trainer); }
  void after_step(Trainer& trainer, const StepView& view) override { inner_->after_step(trainer, view); }
  void after_epoch(Trainer& trainer) override { inner_->after_epoch(trainer); }
  void trigger_epoch(Trainer& trainer) override { inner_->trigger_epoch(trainer); }
  void after_train(Trainer& trainer) override { inner_->after_train(trainer); }
  void trigger(Trainer& trainer) override { inner_->trigger(trainer); }

  void save(core::StateWriter& writer) const override { inner_->save(writer); }
  void load(const core::StateReader& reader) override { inner_->load(reader); }

 protected:
  // Throws kInvalidArgument for null.
  explicit CallbackWrapper(std::shared_ptr<Callback> callback);
  Callback& inner() { return *inner_; }

 private:
  std::shared_ptr<Callback> inner_;
};

// Steps are counted over all runs of a training, epochs from 1. 0: not by these.
struct Period {
  int64_t every_k_steps = 0;
  int64_t every_k_epochs = 0;
  // Throws kInvalidArgument for negative numbers, and for none at all unless `may_be_none`.
  void validate(bool may_be_none = false) const;
};

// Calls the callback's trigger() after every k-th step and behind every k-th epoch, and at no other time. All other
// hooks are the callback's own.
class PeriodicTrigger : public CallbackWrapper {
 public:
  // before_train: also in front of the first step of each train(). It may be without a period then.
  PeriodicTrigger(std::shared_ptr<Callback> callback, Period period, bool before_train = false);

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger_epoch(Trainer& trainer) override;

 private:
  Period period_;
  bool before_train_;
};

// Takes away the hooks around epochs and steps while a condition does not hold: before_epoch, before_step, after_step,
// after_epoch and trigger_epoch. It is asked at each of them; only after_step follows what it said before the step.
// setup, before_train and after_train are always called.
class ConditionalCallback : public CallbackWrapper {
 public:
  void before_epoch(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_epoch(Trainer& trainer) override;
  void trigger_epoch(Trainer& trainer) override;

 protected:
  using CallbackWrapper::CallbackWrapper;
  // Returns whether the hook `event` is called.
  [[nodiscard]] virtual bool enabled(Trainer& trainer, Event event) = 0;

 private:
  bool in_step_ = false;
};

// These hooks only where a predicate says so.
class EnableCallbackIf : public ConditionalCallback {
 public:
  using Predicate = std::function<bool(Trainer&)>;
  EnableCallbackIf(std::shared_ptr<Callback> callback, Predicate predicate);

 protected:
  bool enabled(Trainer& trainer, Event) override { return predicate_(trainer); }

 private:
  Predicate predicate_;
};

// These hooks only in every k-th epoch, and around every k-th step.
class PeriodicCallback : public ConditionalCallback {
 public:
  PeriodicCallback(std::shared_ptr<Callback> callback, Period period);

 protected:
  bool enabled(Trainer& trainer, Event event) override;

 private:
  Period period_;
};

struct RunFunctionTimes {
  bool before_train = true;
  bool as_trigger = true;  // after each epoch, or by a PeriodicTrigger
  bool each_step = false;  // after each step
};

// Calls a function at some of the times at which callbacks are called.
class RunFunction : public Callback {
 public:
  using Function = std::function<void(Trainer&)>;
  // The name is the callback's. Throws kInvalidArgument without a function.
  RunFunction(std::string name, Function function, RunFunctionTimes times = {});

  std::string name() const override { return name_; }
  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger(Trainer& trainer) override;

 private:
  std::string name_;
  Function function_;
  RunFunctionTimes times_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
