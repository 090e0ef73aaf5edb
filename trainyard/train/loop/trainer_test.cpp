#include "trainyard/train/loop/trainer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::train::trainer_test {
namespace {

using Log = std::vector<std::string>;

class CountingTrainer : public Trainer {
 public:
  explicit CountingTrainer(Log* log = nullptr) : log_(log) {}
  std::function<void(const StepView&)> on_step;
  bool chief = true;
  bool is_chief() const override { return chief; }

 protected:
  void run_step(StepView& view) override {
    if (log_ != nullptr) log_->push_back("step " + std::to_string(view.global_step));
    if (on_step) on_step(view);
  }
  void begin_training() override { note("begin_training"); }
  void end_training() override { note("end_training"); }

 private:
  void note(const char* what) {
    if (log_ != nullptr) log_->push_back(what);
  }
  Log* log_;
};

// Writes down what happens, with the trainer's counters.
class Recorder : public Callback {
 public:
  Recorder(std::string name, Log& log) : name_(std::move(name)), log_(&log) {}
  std::string name() const override { return name_; }

  std::function<void(Trainer&, Event)> on_event;

  void setup(Trainer& t) override { note(t, Event::kSetup); }
  void before_train(Trainer& t) override { note(t, Event::kBeforeTrain); }
  void before_epoch(Trainer& t) override { note(t, Event::kBeforeEpoch); }
  void before_step(Trainer& t) override { note(t, Event::kBeforeStep); }
  void after_step(Trainer& t, const StepView& view) override {
    EXPECT_EQ(view.global_step + 1, t.global_step());
    note(t, Event::kAfterStep);
  }
  void after_epoch(Trainer& t) override { note(t, Event::kAfterEpoch); }
  void after_train(Trainer& t) override { note(t, Event::kAfterTrain); }

 private:
  void note(Trainer& trainer, Event event) {
    log_->push_back(name_ + " " + std::string(event_name(event)) + " " + std::to_string(trainer.epoch()) + ":" +
                    std::to_string(trainer.step_in_epoch()) + " of " + std::to_string(trainer.global_step()));
    if (on_event) on_event(trainer, event);
  }
  std::string name_;
  Log* log_;
};

TEST(Trainer, CountsStepsOfOthersInTheGlobalStepAndItsOwnBeside) {
  CountingTrainer trainer;
  trainer.count_global_steps([](int64_t before) { return before + 3; });
  std::vector<int64_t> global, own;
  trainer.on_step = [&](const StepView& view) {
    global.push_back(view.global_step);
    own.push_back(view.own_step);
  };
  trainer.train({.steps_per_epoch = 2, .max_epoch = 2});
  EXPECT_EQ(global, (std::vector<int64_t>{0, 3, 6, 9}));
  EXPECT_EQ(own, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(trainer.global_step(), 12);
  EXPECT_EQ(trainer.own_steps(), 4);
  trainer.set_global_step(20);
  EXPECT_EQ(trainer.global_step(), 20);
}

TEST(Trainer, CallsEveryoneInTheOrderDrawn) {
  Log log;
  CountingTrainer trainer(&log);
  trainer.add(std::make_shared<Recorder>("a", log));
  trainer.add(std::make_shared<Recorder>("b", log));
  trainer.train({.steps_per_epoch = 2, .max_epoch = 2});
  EXPECT_EQ(log, (Log{
                     "a setup 1:0 of 0",
                     "b setup 1:0 of 0",  //
                     "begin_training",    //
                     "a before_train 1:0 of 0",
                     "b before_train 1:0 of 0",  //
                     "a before_epoch 1:0 of 0",
                     "b before_epoch 1:0 of 0",  //
                     "a before_step 1:0 of 0",
                     "b before_step 1:0 of 0",  //
                     "step 0",                  //
                     "a after_step 1:1 of 1",
                     "b after_step 1:1 of 1",  //
                     "a before_step 1:1 of 1",
                     "b before_step 1:1 of 1",  //
                     "step 1",                  //
                     "a after_step 1:2 of 2",
                     "b after_step 1:2 of 2",  //
                     "a after_epoch 1:2 of 2",
                     "b after_epoch 1:2 of 2",  //
                     "a before_epoch 2:0 of 2",
                     "b before_epoch 2:0 of 2",  //
                     "a before_step 2:0 of 2",
                     "b before_step 2:0 of 2",  //
                     "step 2",                  //
                     "a after_step 2:1 of 3",
                     "b after_step 2:1 of 3",  //
                     "a before_step 2:1 of 3",
                     "b before_step 2:1 of 3",  //
                     "step 3",                  //
                     "a after_step 2:2 of 4",
                     "b after_step 2:2 of 4",  //
                     "a after_epoch 2:2 of 4",
                     "b after_epoch 2:2 of 4",  //
                     "a after_train 2:2 of 4",
                     "b after_train 2:2 of 4",  //
                     "end_training",
                 }));
  EXPECT_EQ(trainer.stop_reason(), "");
}

TEST(Trainer, GoesOnInTheMiddleOfAnEpoch) {
  Log log;
  CountingTrainer trainer(&log);
  trainer.add(std::make_shared<Recorder>("a", log));
  trainer.train({.steps_per_epoch = 3, .starting_epoch = 2, .max_epoch = 2, .starting_step = 2});
  EXPECT_EQ(log, (Log{"a setup 2:2 of 0", "begin_training", "a before_train 2:2 of 0", "a before_epoch 2:2 of 0",
                      "a before_step 2:2 of 0", "step 0", "a after_step 2:3 of 1", "a after_epoch 2:3 of 1",
                      "a after_train 2:3 of 1", "end_training"}));
}

TEST(Trainer, ACompleteEpochIsNotRepeated) {
  CountingTrainer trainer;
  trainer.train({.steps_per_epoch = 3, .starting_epoch = 1, .max_epoch = 2, .starting_step = 3});
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.epoch(), 2);
  trainer.train({.steps_per_epoch = 3, .starting_epoch = 2, .max_epoch = 2, .starting_step = 3});
  EXPECT_EQ(trainer.global_step(), 3) << "nothing was left to do";
}

TEST(Trainer, StopsBetweenSteps) {
  Log log;
  CountingTrainer trainer(&log);
  auto recorder = std::make_shared<Recorder>("a", log);
  recorder->on_event = [](Trainer& t, Event event) {
    if (event == Event::kAfterStep && t.global_step() == 2) t.stop("good enough");
    if (event == Event::kAfterTrain) {
      EXPECT_EQ(t.stop_reason(), "good enough");
    }
  };
  trainer.add(recorder);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 5});
  EXPECT_EQ(trainer.global_step(), 2);
  EXPECT_EQ(log.at(log.size() - 3), "a after_step 1:2 of 2") << "no after_epoch: the epoch did not end";
  EXPECT_EQ(log.at(log.size() - 2), "a after_train 1:2 of 2");
  recorder->on_event = nullptr;
  trainer.train({.steps_per_epoch = 3,
                 .starting_epoch = trainer.epoch(),
                 .max_epoch = 2,
                 .starting_step = trainer.step_in_epoch()});
  EXPECT_EQ(trainer.global_step(), 6) << "a stop ends one train(), not the next";
  EXPECT_EQ(trainer.stop_reason(), "");
}

TEST(Trainer, AStopInTheLastStepOfAnEpochLetsItEnd) {
  Log log;
  CountingTrainer trainer(&log);
  trainer.add(std::make_shared<Recorder>("a", log));
  trainer.on_step = [&](const StepView& view) {
    if (view.global_step == 1) trainer.stop("now");
  };
  trainer.train({.steps_per_epoch = 2, .max_epoch = 2});
  EXPECT_EQ(log.at(log.size() - 3), "a after_epoch 1:2 of 2");
  EXPECT_EQ(trainer.epoch(), 1);
}

TEST(Trainer, ListensToAStopToken) {
  core::StopSource source;
  CountingTrainer trainer;
  trainer.set_stop_token(source.token());
  trainer.on_step = [&](const StepView& view) {
    if (view.global_step == 4) source.request_stop(core::StopReason::kSignal, "SIGTERM");
  };
  trainer.train({.steps_per_epoch = 100});
  EXPECT_EQ(trainer.global_step(), 5) << "the step is finished";
  EXPECT_EQ(trainer.stop_reason(), "SIGTERM");
  trainer.train({.steps_per_epoch = 100});
  EXPECT_EQ(trainer.global_step(), 5) << "a signal stays";
}

TEST(Trainer, AnErrorNamesEpochAndStepAndRunsAfterTrain) {
  Log log;
  CountingTrainer trainer(&log);
  trainer.add(std::make_shared<Recorder>("a", log));
  trainer.on_step = [](const StepView& view) {
    if (view.global_step == 3) throw core::Error(core::ErrorCode::kIo, {.problem = "no more", .where = "disk"});
  };
  const core::Error error = core::error_of([&] { trainer.train({.steps_per_epoch = 3, .max_epoch = 2}); }).value();
  EXPECT_EQ(error.code(), core::ErrorCode::kIo);
  EXPECT_STREQ(error.what(), "no more: epoch 2, step 1: disk");
  EXPECT_EQ(log.at(log.size() - 2), "a after_train 2:0 of 3");
  EXPECT_EQ(log.back(), "end_training");
}

TEST(Trainer, AnErrorOfACallbackNamesItAndTheFirstOneIsThrown) {
  Log log;
  CountingTrainer trainer(&log);
  auto bad = std::make_shared<Recorder>("bad", log);
  bad->on_event = [](Trainer&, Event event) {
    if (event == Event::kBeforeStep) throw std::runtime_error("first");
    if (event == Event::kAfterTrain) throw std::runtime_error("second");
  };
  trainer.add(bad);
  trainer.add(std::make_shared<Recorder>("good", log));
  const core::Error error = core::error_of([&] { trainer.train({.steps_per_epoch = 3}); }).value();
  EXPECT_STREQ(error.what(), "first: epoch 1, step 1: callback 'bad', before_step");
  EXPECT_EQ(log.at(log.size() - 2), "good after_train 1:0 of 0") << "the others still run";
}

// The step that has run, although the counters have moved on.
TEST(Trainer, AnErrorAfterAStepNamesThatStep) {
  for (const Event failing : {Event::kAfterStep, Event::kAfterEpoch, Event::kBeforeStep}) {
    Log log;
    CountingTrainer trainer(&log);
    auto bad = std::make_shared<Recorder>("bad", log);
    bad->on_event = [failing](Trainer& t, Event event) {
      if (event == failing && t.step_in_epoch() >= 2) throw core::Error(core::ErrorCode::kIo, "full");
    };
    trainer.add(bad);
    const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 3}); });
    const std::string step = failing == Event::kAfterStep ? "2" : "3";
    EXPECT_EQ(error.what(), "full: epoch 1, step " + step + ": callback 'bad', " + std::string(event_name(failing)));
  }
}

TEST(Trainer, OnlyTheChiefRunsChiefOnlyCallbacks) {
  class ChiefOnly : public Recorder {
   public:
    using Recorder::Recorder;
    bool chief_only() const override { return true; }
  };
  for (const bool chief : {true, false}) {
    Log log;
    CountingTrainer trainer;
    trainer.chief = chief;
    trainer.add(std::make_shared<ChiefOnly>("a", log));
    trainer.train({.steps_per_epoch = 1});
    EXPECT_EQ(log.empty(), !chief);
  }
}

TEST(Trainer, CallbacksHaveNamesOfTheirOwnAndComeBeforeTraining) {
  Log log;
  CountingTrainer trainer;
  trainer.add(std::make_shared<Recorder>("a", log));
  EXPECT_EQ(core::code_of([&] { trainer.add(std::make_shared<Recorder>("a", log)); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::message_of([&] { trainer.add(std::shared_ptr<Callback>()); }), "a callback of a trainer is null");
  auto adder = std::make_shared<Recorder>("adder", log);
  adder->on_event = [&log](Trainer& t, Event event) {
    if (event == Event::kSetup) t.add(std::make_shared<Recorder>("added", log));
    if (event == Event::kBeforeTrain) {
      EXPECT_THROW(t.add(std::make_shared<Recorder>("late", log)), core::Error);
    }
  };
  trainer.add(adder);
  trainer.train({.steps_per_epoch = 1});
  EXPECT_EQ(log.back(), "added after_train 1:1 of 1");
  trainer.train({.steps_per_epoch = 1});
  EXPECT_EQ(std::count(log.begin(), log.end(), "a setup 1:0 of 0"), 1) << "setup is once";
}

// Remembers something, as a callback that keeps a best value does.
class Memory : public Callback {
 public:
  explicit Memory(std::string name) : name_(std::move(name)) {}
  int64_t value = 0;
  std::string name() const override { return name_; }
  void after_step(Trainer&, const StepView& view) override { value += 10 + view.global_step; }
  void save(core::StateWriter& writer) const override { writer.integer("value", value); }
  void load(const core::StateReader& reader) override { value = reader.integer("value"); }

 private:
  std::string name_;
};

TEST(Trainer, SavesCountersAndCallbacksByName) {
  CountingTrainer trainer;
  trainer.add(std::make_shared<Memory>("x"));
  trainer.add(std::make_shared<Memory>("y"));
  trainer.on_step = [&](const StepView& view) {
    if (view.global_step == 3) trainer.stop("break");
  };
  trainer.train({.steps_per_epoch = 3, .max_epoch = 2});
  core::MemoryState saved;
  trainer.save(saved);
  EXPECT_EQ(saved.names(), (Log{"callback/x/value", "callback/y/value", "trainer/epoch", "trainer/global_step",
                                "trainer/step_in_epoch"}));

  CountingTrainer resumed;
  auto y = std::make_shared<Memory>("y"), z = std::make_shared<Memory>("z");
  resumed.add(z);  // new, and in another order
  resumed.add(y);
  resumed.load(saved);
  EXPECT_EQ(resumed.global_step(), 4);
  EXPECT_EQ(resumed.epoch(), 2);
  EXPECT_EQ(resumed.step_in_epoch(), 1);
  EXPECT_EQ(y->value, 10 + 11 + 12 + 13);
  EXPECT_EQ(z->value, 0);
  std::vector<int64_t> steps;
  resumed.on_step = [&](const StepView& view) { steps.push_back(view.global_step); };
  resumed.train({.steps_per_epoch = 3,
                 .starting_epoch = resumed.epoch(),
                 .max_epoch = 2,
                 .starting_step = resumed.step_in_epoch()});
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 5}));
}

// So that other processes can tell a long step from one that makes no progress.
TEST(Trainer, EachCallOfACallbackCountsAsWork) {
  Log log;
  CountingTrainer trainer;
  trainer.add(std::make_shared<Recorder>("a", log));
  trainer.add(std::make_shared<Recorder>("b", log));
  const uint64_t before = core::work_count();
  trainer.train({.steps_per_epoch = 3});
  ASSERT_EQ(log.size(), 2U * (3 + 2 * 3 + 2));
  EXPECT_GE(core::work_count() - before, log.size());
}

TEST(Trainer, RefusesLoopsThatCannotBe) {
  CountingTrainer trainer;
  const auto code = [&](const LoopOptions& loop) { return core::code_of([&] { trainer.train(loop); }); };
  EXPECT_EQ(code({.steps_per_epoch = 0}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.steps_per_epoch = 1, .starting_epoch = 0}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.steps_per_epoch = 1, .max_epoch = -1}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.steps_per_epoch = 2, .starting_step = 3}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.steps_per_epoch = 2, .starting_step = -1}), core::ErrorCode::kInvalidArgument);
}

TEST(Trainer, TellsWhichNumberOfALoopCannotBe) {
  CountingTrainer trainer;
  const auto message = [&](const LoopOptions& loop) { return core::message_of([&] { trainer.train(loop); }); };
  EXPECT_EQ(message({.steps_per_epoch = 0}), "steps_per_epoch is not usable: expected at least 1, got 0");
  EXPECT_EQ(message({.steps_per_epoch = 1, .starting_epoch = 0}),
            "starting_epoch is not usable: expected at least 1, got 0");
  EXPECT_EQ(message({.steps_per_epoch = 1, .max_epoch = -1}), "max_epoch is not usable: expected at least 0, got -1");
  EXPECT_EQ(message({.steps_per_epoch = 2, .starting_step = 3}),
            "starting_step is not usable: expected one in [0, 2], got 3");
  EXPECT_EQ(message({.steps_per_epoch = 2, .max_epoch = 0}), "no error");
  EXPECT_EQ(trainer.global_step(), 0);
}

TEST(Trainer, AnEndThatWasAgreedOnIsThatOfOneTraining) {
  CountingTrainer trainer;
  trainer.stop_by_agreement();
  trainer.on_step = [&](const StepView& view) {
    if (view.global_step == 1) trainer.agree_to_stop(core::StopReason::kSignal, "SIGTERM");
  };
  trainer.train({.steps_per_epoch = 5});
  EXPECT_EQ(trainer.global_step(), 2);
  EXPECT_EQ(trainer.stop_reason(), "SIGTERM");
  EXPECT_TRUE(trainer.stopped_by_signal());
  trainer.train({.steps_per_epoch = 5});
  EXPECT_EQ(trainer.global_step(), 7);
  EXPECT_EQ(trainer.stop_reason(), "");
  EXPECT_FALSE(trainer.stopped_by_signal());
}

TEST(Trainer, LogsTheErrorsThatCameAfterTheFirstOne) {
  Log log;
  CountingTrainer trainer;
  auto bad = std::make_shared<Recorder>("bad", log);
  bad->on_event = [](Trainer&, Event event) {
    if (event == Event::kBeforeStep) throw std::runtime_error("first");
    if (event == Event::kAfterTrain) throw std::runtime_error("second");
  };
  trainer.add(bad);
  testing::internal::CaptureStderr();
  EXPECT_THROW(trainer.train({.steps_per_epoch = 3}), core::Error);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("while the training ended: second: callback 'bad', after_train"), std::string::npos) << said;
}

// Before the first step the error is one of the step that comes next.
TEST(Trainer, AnErrorBeforeTheFirstStepNamesIt) {
  for (const int64_t done : {0, 2}) {
    for (const Event failing : {Event::kBeforeTrain, Event::kBeforeEpoch, Event::kBeforeStep}) {
      Log log;
      CountingTrainer trainer(&log);
      auto bad = std::make_shared<Recorder>("bad", log);
      bad->on_event = [failing](Trainer&, Event event) {
        if (event == failing) throw core::Error(core::ErrorCode::kIo, "full");
      };
      trainer.add(bad);
      const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 3, .starting_step = done}); });
      EXPECT_EQ(error.what(), "full: epoch 1, step " + std::to_string(done + 1) + ": callback 'bad', " +
                                  std::string(event_name(failing)));
    }
  }
}

TEST(Trainer, AnEndBeforeAStepIsTheEndOfTheTraining) {
  struct Ending : CountingTrainer {
    std::optional<std::string> end_before_step() override {
      if (global_step() < 2) return std::nullopt;
      if (++asked > 3) throw core::Error(core::ErrorCode::kInternal, "it was asked again");
      return "the input has ended";
    }
    int asked = 0;
  };
  for (const bool by_agreement : {false, true}) {
    Ending trainer;
    if (by_agreement) trainer.stop_by_agreement();
    trainer.train({.steps_per_epoch = 5});
    EXPECT_EQ(trainer.global_step(), 2);
    EXPECT_EQ(trainer.stop_reason(), "the input has ended");
    EXPECT_FALSE(trainer.stopped_by_signal());
    EXPECT_EQ(trainer.asked, 1);
  }
}

}  // namespace
}  // namespace trainyard::train::trainer_test
