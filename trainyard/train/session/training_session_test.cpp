#include "trainyard/train/session/training_session.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/inotify.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/quantization/quantization_aware.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/session/rank_evaluation.h"
#include "trainyard/train/session/resume.h"
#include "trainyard/train/session/run_report.h"

namespace trainyard::train::training_session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Steps : public Trainer {
 protected:
  void run_step(StepView&) override {}
};

// Counts steps, which it saves, and may ask for the end after one of them.
class Counter : public Callback {
 public:
  explicit Counter(int64_t last = -1) : last_(last) {}
  std::string name() const override { return "counter"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    ++steps;
    if (view.global_step == last_) trainer.stop("enough");
  }
  void save(core::StateWriter& writer) const override { writer.integer("steps", steps); }
  void load(const core::StateReader& reader) override { steps = reader.integer("steps"); }

  int64_t steps = 0;

 private:
  int64_t last_;
};

SessionSteps saving_each_step() {
  SessionSteps steps;
  steps.checkpoints.emplace().save_steps = 1;
  return steps;
}

// Trains to a step in a session of its own, and returns what the counter has at its end.
int64_t train_to(int64_t step, const std::string& directory, int64_t expected_first) {
  Steps trainer;
  const auto counter = std::make_shared<Counter>();
  TrainingSession session(trainer, {.directory = directory, .identity = {.model = "steps"}});
  session.print(counter);
  session.open();
  session.resume();
  session.prepare(saving_each_step());
  EXPECT_EQ(session.first_step(), expected_first);
  session.train({.steps_per_epoch = step, .starting_step = session.first_step()});
  return counter->steps;
}

TEST(TrainingSession, ContinuesWithTheStateOfItsCallbacks) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  EXPECT_EQ(train_to(3, run, 0), 3);
  EXPECT_EQ(train_to(5, run, 3), 5) << "a checkpoint is saved behind the callbacks that count";
  EXPECT_FALSE(core::local_file_system().exists(core::join_path(run, "run.lock")));
}

TEST(TrainingSession, HoldsTheLockOfItsDirectory) {
  const core::TempDir directory;
  Steps trainer, other;
  TrainingSession first(trainer, {.directory = directory.path()}), second(other, {.directory = directory.path()});
  first.open();
  EXPECT_EQ(core::thrown_by([&] { second.open(); }).code(), core::ErrorCode::kInvalidArgument);
}

TEST(TrainingSession, WithoutADirectorySavesNothing) {
  Steps trainer;
  TrainingSession session(trainer, {});
  session.open();
  EXPECT_FALSE(session.resume());
  session.prepare(saving_each_step());
  session.train({.steps_per_epoch = 2});
  EXPECT_FALSE(session.saves());
  EXPECT_FALSE(session.save());
  EXPECT_EQ(session.summary().checkpoint, "");
}

TEST(TrainingSession, ItsSummaryTellsWhatEndedItAndWhere) {
  Steps trainer;
  TrainingSession session(trainer, {});
  session.print(std::make_shared<Counter>(4));
  session.open();
  session.prepare({});
  session.train({.steps_per_epoch = 9});
  const RunSummary stopped = session.summary();
  EXPECT_EQ(stopped.global_step, 5);
  EXPECT_EQ(stopped.stopped_by, "enough");
  EXPECT_TRUE(stopped.rank_seconds.empty());
  EXPECT_FALSE(stopped.best.has_value());
  EXPECT_EQ(stopped.checkpoint, "");
  session.train({.steps_per_epoch = 9, .starting_step = 5});
  const RunSummary complete = session.summary();
  EXPECT_EQ(complete.global_step, 9);
  EXPECT_EQ(complete.stopped_by, "");
}

// Before the steps are prepared nothing is written in the background.
TEST(TrainingSession, SavesBeforeItsStepsArePrepared) {
  const core::TempDir directory;
  Steps trainer;
  TrainingSession session(trainer, {.directory = directory.path(), .identity = {.model = "steps"}});
  session.open();
  const std::optional<CheckpointInfo> saved = session.save();
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->path, directory.file("model.ckpt-0"));
  EXPECT_EQ(saved->global_step, 0);
  EXPECT_EQ(read_checkpoint_identity(*saved).model, "steps");
}

TEST(TrainingSession, ACheckpointOfAnotherModelIsRefused) {
  const core::TempDir directory;
  train_to(2, directory.path(), 0);
  Steps trainer;
  TrainingSession session(trainer, {.directory = directory.path(), .identity = {.model = "other"}});
  session.print(std::make_shared<Counter>());
  EXPECT_THAT(core::message_of([&] { session.resume(); }), HasSubstr("expected other, got steps"));
  EXPECT_EQ(trainer.global_step(), 0);
}

TEST(TrainingSession, OneCheckpointIsLeftOfADirectoryOfItsOwn) {
  const core::TempDir directory;
  Steps trainer;
  TrainingSession session(trainer, {.directory = directory.file("run")});
  session.prepare({});
  const std::string epoch = directory.file("run/0");
  for (const int64_t steps : {2, 3}) {
    session.train({.steps_per_epoch = steps, .starting_step = trainer.step_in_epoch()});
    session.save_alone_in(epoch);
  }
  EXPECT_THAT(core::local_file_system().list(epoch), ElementsAre("model.ckpt-3"));
}

TEST(TrainingSession, KeepsAsManyCheckpointsAsItIsTold) {
  for (const int64_t kept : {1, 2, 0}) {
    const core::TempDir directory;
    Steps trainer;
    TrainingSession session(trainer, {.directory = directory.path(), .max_to_keep = kept});
    session.prepare(saving_each_step());
    session.train({.steps_per_epoch = 4});
    session.summary();  // waits for what is written in the background
    EXPECT_EQ(CheckpointStore(directory.path()).list().size(), kept == 0 ? 4U : static_cast<size_t>(kept));
    session.train({.steps_per_epoch = 5, .starting_step = 4});
    session.save();
    EXPECT_EQ(CheckpointStore(directory.path()).list().size(), kept == 0 ? 5U : static_cast<size_t>(kept))
        << "by save()";
  }
}

TEST(TrainingSession, ResumesFromItsDirectoryWhereItIsTold) {
  const core::TempDir directory;
  train_to(3, directory.path(), 0);
  for (const bool resumes : {true, false}) {
    Steps trainer;
    TrainingSession session(trainer,
                            {.directory = directory.path(), .identity = {.model = "steps"}, .resumes = resumes});
    session.print(std::make_shared<Counter>());
    EXPECT_EQ(session.resume().has_value(), resumes);
    EXPECT_EQ(trainer.global_step(), resumes ? 3 : 0);
  }
}

// What is written in the background is there when a call, or the end of the session, says so.
TEST(TrainingSession, WhatIsSavedIsOnTheDisk) {
  const core::TempDir directory;
  const std::string run = directory.file("run"), best = core::join_path(run, "best");
  const auto step_of = [](const std::string& path) {
    Steps loaded;
    load_checkpoint(find_checkpoint(path), nullptr, loaded);
    return loaded.global_step();
  };
  Steps trainer;
  {
    TrainingSession session(trainer, {.directory = run});
    session.open();
    SessionSteps steps = saving_each_step();
    steps.keep_best = best_by(BestMetric::kTop1);
    session.prepare(std::move(steps));
    session.train({.steps_per_epoch = 3});
    EXPECT_EQ(step_of(run), 3);
    EXPECT_EQ(session.summary().checkpoint, core::join_path(run, "model.ckpt-3"));
    session.note({.top_1 = 0.5}, 3);
    EXPECT_EQ(session.summary().best->info.global_step, 3);
    EXPECT_EQ(step_of(best), 3);
    session.train({.steps_per_epoch = 5, .starting_step = 3});
    session.note({.top_1 = 0.75}, 5);
    EXPECT_EQ(session.save()->path, core::join_path(run, "model.ckpt-5"));
    EXPECT_EQ(step_of(run), 5);
    EXPECT_EQ(step_of(best), 5) << "in front of the checkpoint";
    session.train({.steps_per_epoch = 6, .starting_step = 5});
    session.note({.top_1 = 1}, 6);
  }
  EXPECT_EQ(step_of(best), 6) << "before the lock is given back";
}

TEST(TrainingSession, RanksEndTogetherAndRank0AloneReadsAndWrites) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  train_to(3, run, 0);
  std::atomic<int64_t> steps = 0;
  parallel::on_ranks(3, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    Steps trainer;
    const auto counter = std::make_shared<Counter>(group->rank() == 1 ? 5 : -1);
    TrainingSession session(trainer,
                            {.directory = group->rank() == 0 ? run : "", .ranks = group, .start = StartFacts()});
    session.print(counter);
    session.open();
    ASSERT_TRUE(session.resume());
    EXPECT_EQ(counter->steps, 3);
    session.prepare(saving_each_step());
    session.train({.steps_per_epoch = 1000, .starting_step = 3});
    EXPECT_EQ(trainer.stop_reason(), "enough");
    EXPECT_EQ(session.saves(), group->rank() == 0);
    EXPECT_EQ(session.summary().rank_seconds.size(), 3U);
    if (group->rank() == 0) steps = trainer.global_step();
    EXPECT_LT(trainer.global_step(), 1000);
  });
  EXPECT_EQ(CheckpointStore(run).latest()->global_step, steps);
}

TEST(TrainingSession, RanksOfTheirOwnPaceEndByThemselves) {
  std::atomic<int64_t> first = 0, second = 0;
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    Steps trainer;
    TrainingSession session(trainer, {.ranks = group, .own_pace = true});
    session.print(std::make_shared<Counter>(group->rank() == 1 ? 4 : -1));
    session.open();
    session.prepare({});
    session.train({.steps_per_epoch = 50});
    (group->rank() == 0 ? first : second) = trainer.global_step();
  });
  EXPECT_EQ(first, 50);
  EXPECT_EQ(second, 5);
}

TEST(TrainingSession, RanksThatBeginDifferentlyAreRefused) {
  std::atomic<int> refused = 0;
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    Steps trainer;
    TrainingSession session(trainer,
                            {.ranks = group, .start = StartFacts{{"batch_size", std::to_string(8 + group->rank())}}});
    try {
      session.open();
    } catch (const core::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("batch_size"));
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(TrainingSession, AnEarlyStopComparesByANumber) {
  Steps trainer;
  EXPECT_EQ(core::thrown_by([&] { TrainingSession(trainer, {.early_stop = EarlyStop{}}); }).code(),
            core::ErrorCode::kInvalidArgument);
}

TEST(TrainingSession, AnEvaluationThatIsNoBetterEndsIt) {
  Steps trainer;
  TrainingSession session(trainer, {.compare = best_by(BestMetric::kLoss), .early_stop = EarlyStop{.patience = 2}});
  SessionSteps steps;
  auto& evaluation = steps.evaluation.emplace();
  evaluation.batch_size = 1;
  evaluation.evaluate = [] { return Evaluation{.loss = 1, .samples = 1}; };
  evaluation.due = [](int64_t) { return true; };
  session.prepare(std::move(steps));
  session.train({.steps_per_epoch = 10});
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_TRUE(session.early_end());
  EXPECT_EQ(session.best_value()->global_step, 1);
}

// What the ranks of one run of five steps with an evaluation after each second one have done. All ranks say the same.
struct Evaluated {
  std::vector<int64_t> steps;  // of the evaluations, as the monitors get them
  int64_t global_step = 0;
  std::string stopped_by;
  bool cut_by_signal = false, missing = false;
  bool operator==(const Evaluated&) const = default;
};

// Two ranks, of which the second one gets a signal in the evaluation after a step; -1: none does.
Evaluated evaluate_on_ranks(const std::string& directory, int64_t stopped_evaluation) {
  std::vector<Evaluated> found(2);
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const int rank = group->rank();
    Evaluated& own = found[static_cast<size_t>(rank)];
    core::StopSource stop;
    Steps trainer;
    trainer.set_stop_token(stop.token());
    TrainingSession session(trainer, {.directory = rank == 0 ? directory : "", .ranks = group});
    session.open();
    session.resume();
    SessionSteps steps = saving_each_step();
    auto& evaluation = steps.evaluation.emplace();
    evaluation.over_all_runs = true;
    evaluation.due = [](int64_t done) { return done % 2 == 0; };
    evaluation.evaluate = [&] {
      return evaluate_over_ranks(group.get(), [&]() -> Evaluation {
        if (rank == 1 && trainer.global_step() == stopped_evaluation) {
          stop.request_stop(core::StopReason::kSignal, "SIGTERM");
          throw core::Error(core::ErrorCode::kCancelled, "an evaluation was stopped");
        }
        return {.samples = 1};
      });
    };
    evaluation.on_evaluation = [&](const Evaluation&, int64_t step) { own.steps.push_back(step); };
    session.prepare(std::move(steps));
    session.train({.steps_per_epoch = 5, .starting_step = trainer.step_in_epoch()});
    own.global_step = trainer.global_step();
    own.stopped_by = session.summary().stopped_by;
    own.cut_by_signal = trainer.stopped_by_signal() || session.cut_evaluation().by_signal();
    own.missing = session.cut_evaluation().missing();
  });
  EXPECT_EQ(found[0], found[1]);
  return found[0];
}

TEST(TrainingSession, AnEvaluationThatASignalOfOneRankCutsOffIsRepeatedByAll) {
  for (const int64_t cut : {2, 4, 5}) {
    const core::TempDir directory;
    const Evaluated stopped = evaluate_on_ranks(directory.file("run"), cut);
    EXPECT_EQ(stopped.global_step, cut) << "no rank takes another step";
    EXPECT_EQ(stopped.stopped_by, "SIGTERM");
    EXPECT_TRUE(stopped.cut_by_signal);
    EXPECT_TRUE(stopped.missing);
    const Evaluated resumed = evaluate_on_ranks(directory.file("run"), -1);
    EXPECT_EQ(resumed.global_step, 5);
    EXPECT_EQ(resumed.stopped_by, "");
    EXPECT_FALSE(resumed.cut_by_signal);
    EXPECT_FALSE(resumed.missing);
    std::vector<int64_t> all = stopped.steps;
    all.insert(all.end(), resumed.steps.begin(), resumed.steps.end());
    EXPECT_THAT(all, ElementsAre(2, 4, 5)) << cut;
  }
}

TEST(RankEvaluation, AStopOfOneRankStopsAll) {
  std::atomic<int> cancelled = 0;
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const auto own = [&] {
      return Evaluation{.samples = 3 + group->rank(), .loss_sum = (3.0 + group->rank()) * (1 + group->rank())};
    };
    const Evaluation all = evaluate_over_ranks(group.get(), own);
    EXPECT_EQ(all.samples, 7);
    EXPECT_DOUBLE_EQ(all.loss, (3 * 1.0 + 4 * 2.0) / 7);
    EXPECT_EQ(evaluate_over_ranks(group.get(), own, /*shared=*/false).samples, 3 + group->rank());
    try {
      static_cast<void>(evaluate_over_ranks(group.get(), [&]() -> Evaluation {
        if (group->rank() == 1) throw core::Error(core::ErrorCode::kCancelled, "a stop was asked for");
        return own();
      }));
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCancelled);
      ++cancelled;
    }
  });
  EXPECT_EQ(cancelled, 2);
}

// What an optimizer keeps, under a name of its own, and its name.
class Optimized : public core::Stateful {
 public:
  Optimized(std::string optimizer, std::string slot) : optimizer_(std::move(optimizer)), slot_(std::move(slot)) {}
  void save(core::StateWriter& writer) const override {
    writer.integer(slot_, 1);
    save_optimizer(optimizer_, writer);
  }
  void load(const core::StateReader& reader) override { static_cast<void>(reader.integer(slot_)); }

 private:
  std::string optimizer_, slot_;
};

TEST(ResumeRun, TellsAnotherOptimizerFromACheckpointThatLacksSomething) {
  const core::TempDir directory;
  CheckpointStore(directory.path()).save(4, {}, Optimized("tf_nesterov", "velocity"));
  const auto error = [&](const std::string& optimizer) {
    Optimized state(optimizer, "second_moment");
    return core::thrown_by([&] { resume_run(state, {.directory = directory.path(), .optimizer = optimizer}); });
  };
  EXPECT_EQ(error("tf_adam").code(), core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(error("tf_adam").what(), HasSubstr("--optimizer=tf_nesterov, as it was"));
  EXPECT_EQ(error("tf_nesterov").code(), core::ErrorCode::kCorruptData);
  EXPECT_EQ(error("").code(), core::ErrorCode::kCorruptData);
  Optimized same("tf_adam", "velocity");
  EXPECT_EQ(resume_run(same, {.directory = directory.path(), .optimizer = "tf_adam"})->global_step, 4);
  Optimized other("tf_nesterov", "other");
  try {
    resume_run(other, {.directory = directory.path()});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CheckpointMismatch& mismatch) {
    EXPECT_THAT(mismatch.missing(), ElementsAre("other"));
  }
}

TEST(ResumeRun, ACheckRefusesWhatTheCheckpointSays) {
  const core::TempDir directory;
  CheckpointStore(directory.path()).save(4, {.model = "one"}, Optimized("tf_nesterov", "velocity"));
  Optimized state("tf_nesterov", "velocity");
  ResumeOptions options{.directory = directory.path()};
  options.check = [](const CheckpointInfo& found, const CheckpointFacts& facts) {
    EXPECT_EQ(found.global_step, 4);
    throw core::Error(core::ErrorCode::kUnsupported, facts.identity.model + " by " + facts.optimizer);
  };
  EXPECT_THAT(core::thrown_by([&] { resume_run(state, options); }).what(), HasSubstr("one by tf_nesterov"));
}

// A removal takes its time. A stop within it leaves a name that no reading takes for a damaged checkpoint: one of an
// earlier run that had come further would be the newest.
TEST(TrainingSession, TakesTheNameFromACheckpointBeforeItRemovesIt) {
  const core::TempDir directory;
  const std::string epoch = directory.file("run/0");
  Steps trainer;
  CheckpointStore(epoch).save(9, {}, trainer);
  TrainingSession session(trainer, {.directory = directory.file("run")});
  session.prepare({});
  session.train({.steps_per_epoch = 2});
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  EXPECT_GE(::inotify_add_watch(watch, epoch.c_str(), IN_MOVED_FROM), 0);
  session.save_alone_in(epoch);
  alignas(inotify_event) std::array<char, 8192> events{};
  const ssize_t count = ::read(watch, events.data(), events.size());
  ::close(watch);
  std::vector<std::string> renamed;
  for (ssize_t at = 0; at < count;) {
    const auto* const event = reinterpret_cast<const inotify_event*>(events.data() + at);
    renamed.emplace_back(event->name);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  EXPECT_THAT(renamed, ::testing::Contains("model.ckpt-9"));
  EXPECT_THAT(core::local_file_system().list(epoch), ElementsAre("model.ckpt-2"));
}

// The data of a first evaluation are opened in it, and what a first step has the start's deadline for is made.
TEST(TrainingSession, AFirstEvaluationHasTheTimeOfAFirstStep) {
  const uint16_t port = parallel::free_port();
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [rank, port] {
      const auto group = std::make_shared<parallel::ProcessGroup>(
          parallel::ProcessRank{.rank = rank, .size = 2, .master_port = port},
          parallel::ProcessGroupOptions{
              .deadlines = {.start = std::chrono::seconds(60), .step = std::chrono::milliseconds(300)}});
      Steps trainer;
      TrainingSession session(trainer, {.ranks = group});
      session.open();
      session.prepare({});
      session.train({.steps_per_epoch = 2});
      nn::ParameterSet parameters;
      EXPECT_NO_THROW({
        const Evaluation all = session.evaluate(parameters, [rank] {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
          return Evaluation{.samples = 1};
        });
        EXPECT_EQ(all.samples, 2) << rank;
      });
      group->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

TEST(TrainingSession, ItsReportTellsWhatRunsAndHowItEnded) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  train_to(2, run, 0);
  const auto report = [&] { return nlohmann::json::parse(core::local_file_system().read_file(run + "/summary.json")); };
  for (const bool fails : {true, false}) {
    Steps trainer;
    TrainingSession session(trainer, {.directory = run, .identity = {.model = "steps"}});
    session.print(std::make_shared<Counter>());
    session.open();
    session.resume();
    SessionSteps steps;
    steps.report = RunReportOptions{.path = run + "/summary.json", .model = "steps", .mode = "training"};
    session.prepare(std::move(steps));
    EXPECT_EQ(session.report_path(), "");
    int calls = 0;
    const auto work = [&] {
      ++calls;
      EXPECT_EQ(report()["status"], "running");
      EXPECT_EQ(report()["global_step"], 2);
      session.train({.steps_per_epoch = 5, .starting_step = 2});
      if (fails) throw core::Error(core::ErrorCode::kIo, "the disk is gone");
    };
    if (fails) {
      EXPECT_EQ(core::message_of([&] { session.run(work); }, core::ErrorCode::kIo), "the disk is gone");
      EXPECT_EQ(report()["status"], "failed");
      EXPECT_EQ(report()["error"], "the disk is gone");
    } else {
      session.run(work);
      RunSummary summary = session.summary();
      session.end(summary);
      EXPECT_EQ(report()["status"], "finished");
      EXPECT_EQ(summary.model, "steps");
    }
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(report()["global_step"], 5);
    EXPECT_EQ(session.report_path(), run + "/summary.json");
  }
}

TEST(TrainingSession, WithoutAReportTheWorkIsAllThatRuns) {
  Steps trainer;
  TrainingSession session(trainer, {});
  session.prepare({});
  int calls = 0;
  session.run([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  RunSummary summary = session.summary();
  session.end(summary);
  EXPECT_EQ(session.report_path(), "");
  EXPECT_EQ(summary.model, "");
}

TEST(ResumeRun, ANamedCheckpointIsLoadedInsteadOfTheNewest) {
  const core::TempDir directory;
  const std::string earlier = directory.file("earlier"), run = directory.file("run");
  for (const int64_t step : {4, 6}) {
    Counter counter;
    counter.steps = 10 * step;
    class Counted : public core::Stateful {
     public:
      explicit Counted(const Counter& of) : of_(of) {}
      void save(core::StateWriter& writer) const override { of_.save(writer); }
      void load(const core::StateReader&) override {}

     private:
      const Counter& of_;
    };
    CheckpointStore(earlier).save(step, {.model = "steps"}, Counted(counter));
  }
  class Loaded : public core::Stateful {
   public:
    void save(core::StateWriter& writer) const override { writer.integer("steps", steps); }
    void load(const core::StateReader& reader) override { steps = reader.integer("steps"); }
    int64_t steps = 0;
  };
  Loaded state;
  const std::string named = core::join_path(earlier, "model.ckpt-4");
  const auto found = resume_run(state, {.directory = run, .checkpoint = named, .identity = {.model = "steps"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, named);
  EXPECT_EQ(found->global_step, 4);
  EXPECT_EQ(state.steps, 40);
  EXPECT_FALSE(core::local_file_system().exists(run));
  EXPECT_EQ(resume_run(state, {.checkpoint = earlier})->global_step, 6);
  EXPECT_EQ(state.steps, 60);
  EXPECT_THAT(core::message_of([&] { resume_run(state, {.checkpoint = named, .identity = {.model = "other"}}); }),
              HasSubstr("expected other, got steps"));
}

// A state that has the scale of a node beyond what its checkpoint holds.
class Scaled : public core::Stateful {
 public:
  explicit Scaled(std::string node) : node_(std::move(node)) {}
  void save(core::StateWriter& writer) const override {
    writer.integer("steps", 1);
    if (!node_.empty()) writer.integer(nn::training_scale_name(node_), 1);
  }
  void load(const core::StateReader& reader) override {
    static_cast<void>(reader.integer("steps"));
    if (!node_.empty()) static_cast<void>(reader.integer(nn::training_scale_name(node_)));
  }

 private:
  std::string node_;
};

TEST(ResumeRun, ALayerThatAFlagHasAddedIsNamed) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  const std::string saved = CheckpointStore(run).save(3, {}, Scaled("")).path;
  for (const bool named : {true, false}) {
    const ResumeOptions options = named ? ResumeOptions{.checkpoint = saved} : ResumeOptions{.directory = run};
    for (const std::string flag : {"dropout", "stochastic_depth"}) {
      Scaled state("block." + flag);
      EXPECT_EQ(core::message_of([&] { resume_run(state, options); }),
                "the training with --qat was begun without --" + flag + ": " + saved +
                    ": expected the layers that it has scales of 8 bits for, got block." + flag + "; leave --" + flag +
                    " out, or begin another run from it: --weights");
    }
    Scaled other("dropout.block");
    EXPECT_EQ(core::code_of([&] { resume_run(other, options); }), core::ErrorCode::kCorruptData);
  }
}

}  // namespace
}  // namespace trainyard::train::training_session_test
