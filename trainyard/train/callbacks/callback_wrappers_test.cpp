#include "trainyard/train/callbacks/callback_wrappers.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::callback_wrappers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Notes each hook with the number of steps done, and saves how many there were.
struct HookLog : Callback {
  std::string name() const override { return "hook_log"; }
  void setup(Trainer& t) override { note("setup", t); }
  void before_train(Trainer& t) override { note("before_train", t); }
  void before_epoch(Trainer& t) override { note("before_epoch", t); }
  void before_step(Trainer& t) override { note("before_step", t); }
  void after_step(Trainer& t, const StepView&) override { note("after_step", t); }
  void after_epoch(Trainer& t) override { note("after_epoch", t); }
  void trigger(Trainer& t) override { note("trigger", t); }
  void after_train(Trainer& t) override { note("after_train", t); }
  void save(core::StateWriter& writer) const override { writer.integer("events", std::ssize(log)); }
  void load(const core::StateReader& reader) override { loaded = reader.integer("events"); }

  void note(const char* hook, Trainer& trainer) {
    log.push_back(std::string(hook) + " " + std::to_string(trainer.global_step()));
  }
  // The steps at which a hook was called: "1 2".
  std::string at(const std::string& hook) const {
    std::string steps;
    for (const std::string& line : log) {
      if (line.starts_with(hook + " ")) steps += (steps.empty() ? "" : " ") + line.substr(hook.size() + 1);
    }
    return steps;
  }
  std::vector<std::string> log;
  int64_t loaded = 0;
};

std::shared_ptr<HookLog> hooks_of(const std::function<std::shared_ptr<Callback>(std::shared_ptr<Callback>)>& wrap,
                                  const LoopOptions& loop) {
  const auto log = std::make_shared<HookLog>();
  PretendTrainer trainer;
  trainer.add(wrap(log));
  trainer.train(loop);
  return log;
}

TRAINYARD_CALLBACK_CONFORMANCE(PeriodicTrigger, [] {
  return std::make_shared<PeriodicTrigger>(std::make_shared<HookLog>(), Period{.every_k_steps = 2});
});
TRAINYARD_CALLBACK_CONFORMANCE(PeriodicCallback, [] {
  return std::make_shared<PeriodicCallback>(std::make_shared<HookLog>(), Period{.every_k_epochs = 2});
});
TRAINYARD_CALLBACK_CONFORMANCE(EnableCallbackIf, [] {
  return std::make_shared<EnableCallbackIf>(std::make_shared<HookLog>(), [](Trainer&) { return true; });
});
TRAINYARD_CALLBACK_CONFORMANCE(RunFunction, [] { return std::make_shared<RunFunction>("f", [](Trainer&) {}); });

TEST(Callback, IsTriggeredAfterEachEpochBehindAllAfterEpochs) {
  PretendTrainer trainer;
  std::vector<std::string> order;
  struct Ordered : Callback {
    Ordered(std::string called, std::vector<std::string>& to) : name_(std::move(called)), to_(to) {}
    std::string name() const override { return name_; }
    void after_epoch(Trainer&) override { to_.push_back(name_ + " after_epoch"); }
    void trigger(Trainer&) override { to_.push_back(name_ + " trigger"); }
    std::string name_;
    std::vector<std::string>& to_;
  };
  trainer.add(std::make_shared<Ordered>("a", order));
  trainer.add(std::make_shared<Ordered>("b", order));
  trainer.train({.steps_per_epoch = 2});
  EXPECT_THAT(order, ElementsAre("a after_epoch", "b after_epoch", "a trigger", "b trigger"));
}

TEST(PeriodicTrigger, TriggersAtItsPeriodsOnly) {
  const LoopOptions loop{.steps_per_epoch = 3, .max_epoch = 4};
  const auto at = [&](Period period, bool before_train = false) {
    return hooks_of([&](auto inner) { return std::make_shared<PeriodicTrigger>(inner, period, before_train); }, loop);
  };
  EXPECT_EQ(at({.every_k_epochs = 2})->at("trigger"), "6 12");
  EXPECT_EQ(at({.every_k_steps = 5})->at("trigger"), "5 10");
  EXPECT_EQ(at({.every_k_steps = 5, .every_k_epochs = 3}, true)->at("trigger"), "0 5 9 10");
  EXPECT_EQ(at({}, true)->at("trigger"), "0");
  const auto log = at({.every_k_epochs = 2});
  EXPECT_EQ(log->at("after_epoch"), "3 6 9 12") << "the other hooks are as they were";
  EXPECT_EQ(log->at("after_step"), "1 2 3 4 5 6 7 8 9 10 11 12");
  EXPECT_EQ(log->at("before_train") + log->at("setup") + log->at("after_train"), "0012");
}

TEST(PeriodicCallback, HasItsHooksInTheseEpochsOnly) {
  const auto log =
      hooks_of([](auto inner) { return std::make_shared<PeriodicCallback>(inner, Period{.every_k_epochs = 2}); },
               {.steps_per_epoch = 2, .max_epoch = 4});
  EXPECT_THAT(log->log, ElementsAre("setup 0", "before_train 0",  //
                                    "before_epoch 2", "before_step 2", "after_step 3", "before_step 3", "after_step 4",
                                    "after_epoch 4", "trigger 4",  //
                                    "before_epoch 6", "before_step 6", "after_step 7", "before_step 7", "after_step 8",
                                    "after_epoch 8", "trigger 8", "after_train 8"));
}

TEST(PeriodicCallback, HasItsHooksAroundTheseStepsOnly) {
  const auto log =
      hooks_of([](auto inner) { return std::make_shared<PeriodicCallback>(inner, Period{.every_k_steps = 3}); },
               {.steps_per_epoch = 8});
  EXPECT_EQ(log->at("before_step"), "2 5") << "before the third and the sixth";
  EXPECT_EQ(log->at("after_step"), "3 6");
  EXPECT_EQ(log->at("trigger"), "");
}

TEST(EnableCallbackIf, AsksAtEachHookAndKeepsStepsWhole) {
  const auto log = hooks_of(
      [](auto inner) {
        return std::make_shared<EnableCallbackIf>(inner, [](Trainer& t) { return t.global_step() % 2 == 0; });
      },
      {.steps_per_epoch = 3, .max_epoch = 2});
  EXPECT_EQ(log->at("before_step"), "0 2 4");
  EXPECT_EQ(log->at("after_step"), "1 3 5") << "of the steps that had before_step";
  EXPECT_EQ(log->at("before_epoch"), "0");
  EXPECT_EQ(log->at("after_epoch"), "6");
  EXPECT_EQ(log->at("trigger"), "6");
  EXPECT_EQ(log->at("after_train"), "6");
}

TEST(RunFunction, RunsWhereItIsToldTo) {
  const auto steps = [](RunFunctionTimes times) {
    std::vector<int64_t> at;
    PretendTrainer trainer;
    trainer.add(std::make_shared<RunFunction>(
        "f", [&](Trainer& t) { at.push_back(t.global_step()); }, times));
    trainer.train({.steps_per_epoch = 2, .max_epoch = 2});
    return at;
  };
  EXPECT_THAT(steps({}), ElementsAre(0, 2, 4));
  EXPECT_THAT(steps({.before_train = false}), ElementsAre(2, 4));
  EXPECT_THAT(steps({.before_train = false, .as_trigger = false, .each_step = true}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps({.before_train = false, .as_trigger = false}), IsEmpty());
}

TEST(CallbackWrappers, SaveWhatTheCallbackInThemSaves) {
  const auto saved_by = [](const std::shared_ptr<Callback>& callback) {
    PretendTrainer trainer;
    trainer.add(callback);
    trainer.train({.steps_per_epoch = 2});
    core::MemoryState saved;
    trainer.save(saved);
    return saved;
  };
  const auto plain = saved_by(std::make_shared<HookLog>());
  const auto log = std::make_shared<HookLog>();
  const auto wrapped = std::make_shared<PeriodicTrigger>(log, Period{.every_k_epochs = 2});
  EXPECT_EQ(saved_by(wrapped).names(), plain.names());
  PretendTrainer trainer;
  trainer.add(wrapped);
  trainer.load(plain);
  EXPECT_EQ(log->loaded, 10) << "of the run without the wrapper";
}

TEST(CallbackWrappers, RefuseWhatCannotBe) {
  const auto log = std::make_shared<HookLog>();
  const auto code = core::ErrorCode::kInvalidArgument;
  EXPECT_THAT(core::message_of([&] { PeriodicTrigger(log, {}); }, code), HasSubstr("period"));
  EXPECT_THAT(core::message_of([&] { PeriodicTrigger(log, {.every_k_steps = -1, .every_k_epochs = 1}); }, code),
              HasSubstr("every_k_steps -1"));
  EXPECT_THAT(core::message_of([&] { PeriodicCallback(log, {}); }, code), HasSubstr("period"));
  EXPECT_THAT(core::message_of([&] { PeriodicCallback(nullptr, {.every_k_steps = 1}); }, code), HasSubstr("callback"));
  EXPECT_THAT(core::message_of([&] { EnableCallbackIf(log, nullptr); }, code), HasSubstr("predicate"));
  EXPECT_THAT(core::message_of([&] { RunFunction("f", nullptr); }, code), HasSubstr("function"));
}

// In every hook: the error names callback and hook, and what was begun ends.
TEST(Callback, OneThatThrowsEndsTheTrainingAndIsNamed) {
  struct Throwing : HookLog {
    explicit Throwing(std::string hook) : in(std::move(hook)) {}
    std::string name() const override { return "throwing"; }
    void check(const std::string& hook) const {
      if (hook == in) throw core::Error(core::ErrorCode::kIo, "on purpose");
    }
    void setup(Trainer&) override { check("setup"); }
    void before_train(Trainer&) override { check("before_train"); }
    void before_epoch(Trainer&) override { check("before_epoch"); }
    void before_step(Trainer&) override { check("before_step"); }
    void after_step(Trainer&, const StepView&) override { check("after_step"); }
    void after_epoch(Trainer&) override { check("after_epoch"); }
    void trigger(Trainer&) override { check("trigger_epoch"); }
    void after_train(Trainer&) override { check("after_train"); }
    std::string in;
  };
  for (const char* hook : {"setup", "before_train", "before_epoch", "before_step", "after_step", "after_epoch",
                           "trigger_epoch", "after_train"}) {
    PretendTrainer trainer;
    const auto other = std::make_shared<HookLog>();
    trainer.add(other);
    trainer.add(std::make_shared<Throwing>(hook));
    const std::string message = core::message_of([&] { trainer.train({.steps_per_epoch = 2}); }, core::ErrorCode::kIo);
    EXPECT_THAT(message, HasSubstr("on purpose"));
    EXPECT_THAT(message, HasSubstr("callback 'throwing', " + std::string(hook)));
    // What fails in setup() fails before anything has begun.
    EXPECT_EQ(other->at("after_train").empty(), hook == std::string("setup")) << hook;
  }
}

TEST(Callback, OneThatIsAddedDuringTheTrainingIsRefusedByName) {
  PretendTrainer trainer;
  trainer.in_step = [&](int64_t) { trainer.add(std::make_shared<HookLog>()); };
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }, core::ErrorCode::kInvalidArgument),
              HasSubstr("callback 'hook_log' comes too late: the training has begun"));
}

TEST(Trainer, FailEndsTheRunWithThatError) {
  for (const bool throws : {false, true}) {
    PretendTrainer trainer;
    const auto log = std::make_shared<HookLog>();
    trainer.add(log);
    trainer.in_step = [&](int64_t step) {
      if (step != 2) return;
      trainer.fail(core::Error(core::ErrorCode::kTimeout, "too slow"));
      trainer.fail(core::Error(core::ErrorCode::kIo, "the second"));
      if (throws) throw core::Error(core::ErrorCode::kCancelled, "woken up");
    };
    testing::internal::CaptureStderr();
    EXPECT_EQ(core::message_of([&] { trainer.train({.steps_per_epoch = 9}); }, core::ErrorCode::kTimeout), "too slow");
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("woken up") != std::string::npos, throws);
    EXPECT_EQ(log->at("after_train"), throws ? "2" : "3");
    trainer.in_step = nullptr;
    EXPECT_NO_THROW(trainer.train({.steps_per_epoch = 1})) << "the next training is another one";
  }
}

}  // namespace
}  // namespace trainyard::train::callback_wrappers_test
