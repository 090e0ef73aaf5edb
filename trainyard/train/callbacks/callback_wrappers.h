// Callbacks that decide when another callback is called. Names and meaning are Tensorpack's. A wrapper has the name and
// the saved state of the wrapped callback, so a checkpoint fits with and without the wrapper.
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

// Forwards every hook to the wrapped callback.
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

// A period in steps, counted over all runs of a training, and in epochs, counted from 1. 0: never.
struct Period {
  int64_t every_k_steps = 0;
  int64_t every_k_epochs = 0;
  // Throws kInvalidArgument for negative numbers, and when both are 0 unless `may_be_none`.
  void validate(bool may_be_none = false) const;
};

// Calls the callback's trigger() after every k-th step and after every k-th epoch, and at no other time. All other
// hooks are forwarded.
class PeriodicTrigger : public CallbackWrapper {
 public:
  // With `before_train` trigger() is also called before the first step of each train(), and the period may be empty.
  PeriodicTrigger(std::shared_ptr<Callback> callback, Period period, bool before_train = false);

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void trigger_epoch(Trainer& trainer) override;

 private:
  Period period_;
  bool before_train_;
};

// Forwards before_epoch, before_step, after_step, after_epoch and trigger_epoch only while a condition holds. The
// condition is evaluated at each of them, except that after_step uses its result from before_step. setup, before_train
// and after_train are always forwarded.
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

// Forwards these hooks when a predicate returns true.
class EnableCallbackIf : public ConditionalCallback {
 public:
  using Predicate = std::function<bool(Trainer&)>;
  EnableCallbackIf(std::shared_ptr<Callback> callback, Predicate predicate);

 protected:
  bool enabled(Trainer& trainer, Event) override { return predicate_(trainer); }

 private:
  Predicate predicate_;
};

// Forwards these hooks in every k-th epoch, and around every k-th step.
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

// Calls a function at selected hooks.
class RunFunction : public Callback {
 public:
  using Function = std::function<void(Trainer&)>;
  // `name` is the callback's name. Throws kInvalidArgument without a function.
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
