// What every callback must do, in one line next to its own tests:
//
//   TRAINYARD_CALLBACK_CONFORMANCE(Summary, [] { return std::make_shared<SummaryCallback>(...); });
//
// The factory makes a new callback, ready for any trainer; it is called several times.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

// Steps that take a tenth of a second each by their own account and none by the clock; the loss of step k is 1 / (k +
// 1).
class PretendTrainer : public Trainer {
 public:
  // Called in each step, with its global step; may throw.
  std::function<void(int64_t)> in_step;
  bool on_accelerator = false;  // what steps' times say

 protected:
  void run_step(StepView& view) override {
    if (in_step) in_step(view.global_step);
    view.times = {
        .total = 0.1, .input = 0.02, .compute = 0.05, .communication = 0.01, .update = 0.02, .waiting = 0.004};
    view.times.on_accelerator = on_accelerator;
    view.replicas.resize(1);
    view.replicas[0].losses.set("cost", at::full({}, 1.0 / static_cast<double>(view.global_step + 1), at::kFloat));
  }
};

using CallbackFactory = std::function<std::shared_ptr<Callback>()>;

inline void run_callback(Trainer& trainer, const std::shared_ptr<Callback>& callback, const LoopOptions& options) {
  trainer.add(callback);
  trainer.train(options);
}

inline void check_callback_name(const CallbackFactory& make) {
  const std::shared_ptr<Callback> callback = make();
  EXPECT_FALSE(callback->name().empty());
  EXPECT_EQ(callback->name().find('/'), std::string::npos) << "it is a prefix of saved names";
  EXPECT_EQ(callback->name(), make()->name());
  PretendTrainer trainer;
  trainer.add(callback);
  EXPECT_THROW(trainer.add(make()), core::Error) << "a second one of the same name";
}

// A run of no steps at all; before_train has been called and no step.
inline void check_callback_empty_run(const CallbackFactory& make) {
  PretendTrainer trainer;
  EXPECT_NO_THROW(run_callback(trainer, make(), {.steps_per_epoch = 3, .starting_step = 3}));
}

// A run that ends before before_train of this callback: only after_train is called.
inline void check_callback_failed_start(const CallbackFactory& make) {
  class Failing : public Callback {
   public:
    std::string name() const override { return "failing"; }
    void before_train(Trainer&) override { throw core::Error(core::ErrorCode::kIo, "on purpose"); }
  };
  PretendTrainer trainer;
  trainer.add(std::make_shared<Failing>());
  trainer.add(make());
  try {
    trainer.train({.steps_per_epoch = 1});
    ADD_FAILURE() << "the failure was lost";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("on purpose"), std::string::npos) << error.what();
  }
}

inline void check_callback_state(const CallbackFactory& make) {
  PretendTrainer trainer;
  const std::shared_ptr<Callback> callback = make();
  run_callback(trainer, callback, {.steps_per_epoch = 5, .max_epoch = 2});
  core::MemoryState saved, again;
  callback->save(saved);
  const std::shared_ptr<Callback> other = make();
  other->load(saved);
  other->save(again);
  EXPECT_EQ(saved.names(), again.names());
}

// after_train once more changes nothing: what is saved stays, and nothing is thrown. And a callback serves two runs.
inline void check_callback_ends_twice(const CallbackFactory& make) {
  PretendTrainer trainer;
  const std::shared_ptr<Callback> callback = make();
  run_callback(trainer, callback, {.steps_per_epoch = 5});
  core::MemoryState before, after;
  callback->save(before);
  EXPECT_NO_THROW(callback->after_train(trainer));
  callback->save(after);
  EXPECT_EQ(before.names(), after.names());
  EXPECT_NO_THROW(trainer.train({.steps_per_epoch = 2}));
  EXPECT_EQ(trainer.global_step(), 7);
}

}  // namespace trainyard::train

#define TRAINYARD_CALLBACK_CONFORMANCE(Name, ...)                 \
  TEST(CallbackConformance, Name##HasAName) {                     \
    ::trainyard::train::check_callback_name(__VA_ARGS__);         \
  }                                                               \
  TEST(CallbackConformance, Name##TakesAnEmptyRun) {              \
    ::trainyard::train::check_callback_empty_run(__VA_ARGS__);    \
  }                                                               \
  TEST(CallbackConformance, Name##TakesAFailedStart) {            \
    ::trainyard::train::check_callback_failed_start(__VA_ARGS__); \
  }                                                               \
  TEST(CallbackConformance, Name##LoadsWhatItSaved) {             \
    ::trainyard::train::check_callback_state(__VA_ARGS__);        \
  }                                                               \
  TEST(CallbackConformance, Name##MayEndTwiceAndBeginAgain) {     \
    ::trainyard::train::check_callback_ends_twice(__VA_ARGS__);   \
  }                                                               \
  static_assert(true, "for a semicolon behind the macro")
