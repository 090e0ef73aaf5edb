#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/callbacks/step_accuracies.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::callbacks_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What monitors got.
struct Record : Monitor {
  explicit Record(std::vector<Scalars>& to) : rows(to) {}
  void write(const Scalars& scalars) override { rows.push_back(scalars); }
  std::vector<Scalars>& rows;
};

// A clock that goes on by `step` seconds with each look.
std::function<double()> ticking(double step) {
  return [now = 0.0, step]() mutable { return now += step; };
}

const core::TempDir& conformance_directory() {
  static const core::TempDir directory;
  return directory;
}

TRAINYARD_CALLBACK_CONFORMANCE(Checkpoint, [] {
  return std::make_shared<CheckpointCallback>(CheckpointStore(conformance_directory().path(), 2),
                                              CheckpointCallbackOptions{.save_steps = 2});
});
TRAINYARD_CALLBACK_CONFORMANCE(Summary, [] {
  return std::make_shared<SummaryCallback>(SummaryOptions{.every_steps = 2, .batch_size = 8});
});
TRAINYARD_CALLBACK_CONFORMANCE(Evaluation, [] {
  return std::make_shared<EvaluationCallback>(
      EvaluationCallbackOptions{.evaluate = [] { return Evaluation{.samples = 1}; }});
});
TRAINYARD_CALLBACK_CONFORMANCE(Progress,
                               [] { return std::make_shared<ProgressCallback>(ProgressOptions{.enabled = false}); });

TEST(SummaryCallback, CanChooseItsStepsByTheGlobalOne) {
  PretendTrainer trainer;
  std::vector<Scalars> rows;
  trainer.monitors().add(std::make_unique<Record>(rows));
  SummaryOptions options{
      .every_steps = 2, .due = [](int64_t step) { return step == 1 || step % 5 == 0 || step == 12; }, .batch_size = 32};
  run_callback(trainer, std::make_shared<SummaryCallback>(options), {.steps_per_epoch = 7});
  trainer.train({.steps_per_epoch = 12, .starting_step = 7});
  std::vector<int64_t> steps;
  for (const Scalars& row : rows) steps.push_back(row.global_step);
  EXPECT_THAT(steps, ElementsAre(1, 5, 10, 12));
}

// Four samples, of which the label of `right` is the first choice and that of the others the last of seven.
ReplicaView replica_with_hits(int64_t right) {
  ReplicaView replica;
  replica.outputs.set("logits", at::arange(7, at::kFloat).expand({4, 7}));
  replica.batch.tensors.set("labels", at::zeros({4}, at::kLong));
  replica.batch.labels().slice(0, 0, right).fill_(6);
  return replica;
}

TEST(StepAccuracies, AreComputedOnceAStep) {
  StepAccuracies accuracies;
  StepView view;
  view.replicas = {replica_with_hits(1), replica_with_hits(2)};
  EXPECT_DOUBLE_EQ(accuracies.of(view).top_1, 3.0 / 8);
  view.replicas = {replica_with_hits(4)};
  EXPECT_DOUBLE_EQ(accuracies.of(view).top_1, 3.0 / 8);  // not looked at again
  view.global_step += 1;
  EXPECT_DOUBLE_EQ(accuracies.of(view).top_1, 1);
  EXPECT_DOUBLE_EQ(accuracies.of(view).top_5, 1);
}

// The steps of a directory's checkpoints.
std::vector<int64_t> saved_steps(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : CheckpointStore(directory).list()) steps.push_back(info.global_step);
  return steps;
}

TEST(CheckpointCallback, SavesEveryNStepsAfterTheWarmUpAndAtTheEnd) {
  const core::TempDir directory;
  PretendTrainer trainer;
  const auto callback = std::make_shared<CheckpointCallback>(
      CheckpointStore(directory.path(), 0), CheckpointCallbackOptions{.save_steps = 4, .warmup_steps = 2});
  run_callback(trainer, callback, {.steps_per_epoch = 11});
  // Global step 2 is local step 0: not saved. 6 and 10 are local steps 4 and 8; 11 is the end.
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(6, 10, 11));
  EXPECT_EQ(callback->last_saved()->global_step, 11);

  PretendTrainer resumed;
  load_checkpoint(find_checkpoint(directory.path()), nullptr, resumed);
  EXPECT_EQ(resumed.global_step(), 11);
}

TEST(CheckpointCallback, CanCountTheStepsOfAllRuns) {
  const core::TempDir directory;
  PretendTrainer trainer;
  trainer.train({.steps_per_epoch = 3});
  run_callback(trainer,
               std::make_shared<CheckpointCallback>(
                   CheckpointStore(directory.path(), 0),
                   CheckpointCallbackOptions{.save_steps = 4, .warmup_steps = 2, .over_all_runs = true}),
               {.steps_per_epoch = 10, .starting_step = 3});
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(4, 8, 10));
}

TEST(CheckpointCallback, SavesAfterStepsOfTheCallersChoice) {
  const core::TempDir directory;
  PretendTrainer trainer;
  CheckpointCallbackOptions options{.save_seconds = 1e9, .warmup_steps = 1};
  options.due = [](int64_t done) { return done == 2 || done == 5; };
  run_callback(trainer, std::make_shared<CheckpointCallback>(CheckpointStore(directory.path(), 0), options),
               {.steps_per_epoch = 8});
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(3, 6, 8));
}

TEST(CheckpointCallback, SavesEveryNSeconds) {
  const core::TempDir directory;
  PretendTrainer trainer;
  // The clock is looked at once a step, and once more after saving: 7 seconds pass in 3 steps of 3 seconds.
  run_callback(trainer,
               std::make_shared<CheckpointCallback>(
                   CheckpointStore(directory.path(), 0),
                   CheckpointCallbackOptions{.save_seconds = 7, .save_at_end = false, .clock = ticking(3)}),
               {.steps_per_epoch = 7});
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(3, 6));
}

// Nothing, which takes `seconds` to save by the clock `now`.
struct SlowState : core::Stateful {
  explicit SlowState(double* clock, double seconds) : now(clock), duration(seconds) {}
  void save(core::StateWriter&) const override { *now += duration; }
  void load(const core::StateReader&) override {}
  double *now, duration;
};

// The steps after which epochs of one step, of a second each, are saved where saving takes `seconds`.
std::vector<int64_t> saved_epochs(double seconds, int64_t epochs, int* saves = nullptr, bool by_choice = false) {
  const core::TempDir directory;
  PretendTrainer trainer;
  double now = 0;
  trainer.in_step = [&](int64_t) { now += 1; };
  CheckpointCallbackOptions options{.due_is_each_epoch = true, .each_epoch = !by_choice};
  if (by_choice) options.due = [](int64_t) { return true; };
  options.state = std::make_shared<SlowState>(&now, seconds);
  options.clock = [&] { return now; };
  if (saves != nullptr) options.before_save = [saves] { ++*saves; };
  run_callback(trainer, std::make_shared<CheckpointCallback>(CheckpointStore(directory.path(), 0), options),
               {.steps_per_epoch = 1, .max_epoch = epochs});
  return saved_steps(directory.path());
}

TEST(CheckpointCallback, SavesFewerEpochsWhereSavingWouldTakeMoreThanATwentiethOfTheTime) {
  EXPECT_THAT(saved_epochs(0.025, 5), ElementsAre(1, 2, 3, 4, 5)) << "too short to count";
  // 0.2 seconds are a twentieth of 4: with the save itself the next is due at 1 + 4, that one ends the fifth second.
  int saves = 0;
  EXPECT_THAT(saved_epochs(0.2, 10, &saves), ElementsAre(1, 5, 9, 10)) << "the last at the end";
  EXPECT_EQ(saves, 4);
  EXPECT_THAT(saved_epochs(0.2, 10, &saves, /*by_choice=*/true), ElementsAre(1, 5, 9, 10));
}

TEST(CheckpointCallback, SavesWhenASignalStopsTheRun) {
  const core::TempDir directory;
  PretendTrainer trainer;
  core::StopSource stop;
  trainer.set_stop_token(stop.token());
  trainer.in_step = [&](int64_t step) {
    if (step == 4) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  };
  run_callback(trainer,
               std::make_shared<CheckpointCallback>(CheckpointStore(directory.path()), CheckpointCallbackOptions{}),
               {.steps_per_epoch = 100});
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(5)) << "the step is finished first";
  EXPECT_EQ(trainer.stop_reason(), "SIGTERM");
}

TEST(CheckpointCallback, SavesNothingAfterAStepThatThrew) {
  const core::TempDir directory;
  PretendTrainer trainer;
  trainer.in_step = [](int64_t step) {
    if (step == 5) throw core::Error(core::ErrorCode::kInternal, "on purpose");
  };
  EXPECT_THROW(run_callback(trainer,
                            std::make_shared<CheckpointCallback>(CheckpointStore(directory.path()),
                                                                 CheckpointCallbackOptions{.save_steps = 2}),
                            {.steps_per_epoch = 100}),
               core::Error);
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(2, 4));
}

// The wrapper forwards the end of the training, but not the beginning of the step that throws.
TEST(CheckpointCallback, SavesNothingAfterAStepThatThrewBehindAWrapper) {
  const core::TempDir directory;
  PretendTrainer trainer;
  trainer.in_step = [](int64_t step) {
    if (step == 5) throw core::Error(core::ErrorCode::kInternal, "on purpose");
  };
  const auto saver = std::make_shared<CheckpointCallback>(CheckpointStore(directory.path()),
                                                          CheckpointCallbackOptions{.save_steps = 2});
  const auto first_steps = [](Trainer& t) { return t.global_step() < 3; };
  EXPECT_THROW(run_callback(trainer, std::make_shared<EnableCallbackIf>(saver, first_steps), {.steps_per_epoch = 100}),
               core::Error);
  EXPECT_TRUE(trainer.step_failed());
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(2));
  trainer.in_step = nullptr;
  trainer.train({.steps_per_epoch = 2});
  EXPECT_FALSE(trainer.step_failed());
}

// Weights that are NaN from some step on.
class FailingWeights : public core::Stateful {
 public:
  FailingWeights(const Trainer& trainer, int64_t first_bad) : trainer_(&trainer), first_bad_(first_bad) {}
  void save(core::StateWriter& writer) const override {
    const bool bad = trainer_->global_step() >= first_bad_;
    writer.tensor("model/weights", at::full({3}, bad ? std::nan("") : 1.0));
  }
  void load(const core::StateReader&) override {}

 private:
  const Trainer* trainer_;
  int64_t first_bad_;
};

TEST(CheckpointCallback, KeepsTheLastGoodCheckpointsWhenWeightsAreNan) {
  const core::TempDir directory;
  PretendTrainer trainer;
  CheckpointCallbackOptions options{.save_steps = 2, .non_finite_is_error = false};
  options.state = std::make_shared<FailingWeights>(trainer, 5);
  const auto callback = std::make_shared<CheckpointCallback>(CheckpointStore(directory.path(), 1), options);
  ::testing::internal::CaptureStderr();
  run_callback(trainer, callback, {.steps_per_epoch = 9});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(4));
  EXPECT_EQ(callback->last_saved()->global_step, 4);
  for (const char* step : {"6", "8", "9"}) {
    EXPECT_THAT(log, HasSubstr(std::string("not finite: step ") + step + ", tensor model/weights"));
  }
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << log;

  options.non_finite_is_error = true;
  PretendTrainer other;
  options.state = std::make_shared<FailingWeights>(other, 5);
  EXPECT_THROW(run_callback(other, std::make_shared<CheckpointCallback>(CheckpointStore(directory.path(), 1), options),
                            {.steps_per_epoch = 9}),
               core::Error);
  EXPECT_THAT(saved_steps(directory.path()), ElementsAre(4));
}

TEST(CheckpointCallback, RefusesTwoIntervals) {
  EXPECT_THROW(CheckpointCallback(CheckpointStore("x"), {.save_steps = 1, .save_seconds = 1}), core::Error);
  EXPECT_THROW(CheckpointCallback(CheckpointStore("x"), {.save_steps = -1}), core::Error);
}

TEST(CheckpointCallback, NamesIntervalsThatCannotBe) {
  const auto refused = [](const CheckpointCallbackOptions& options) {
    return core::message_of([&] { options.validate(); });
  };
  const std::string negative = "intervals of checkpoints must not be negative: got ";
  EXPECT_EQ(refused({}), "no error");
  EXPECT_EQ(refused({.save_steps = -1}), negative + "-1 steps, 0 seconds, 0 steps of warm-up");
  EXPECT_EQ(refused({.save_steps = 2, .save_seconds = -0.5, .warmup_steps = 3}),
            negative + "2 steps, -0.5 seconds, 3 steps of warm-up");
  EXPECT_EQ(refused({.save_seconds = std::nan("")}), negative + "0 steps, nan seconds, 0 steps of warm-up");
  EXPECT_EQ(refused({.warmup_steps = -1}), negative + "0 steps, 0 seconds, -1 steps of warm-up");
  EXPECT_EQ(refused({.save_steps = 1, .save_seconds = 1}),
            "At most one of --save_model_secs and --save_model_steps can be specified");
}

TEST(SummaryCallback, NamesCountsThatCannotBe) {
  const auto refused = [](const SummaryOptions& options) { return core::message_of([&] { options.validate(); }); };
  const std::string counts = "summaries need a positive batch size and no negative counts: got batch_size ";
  EXPECT_EQ(refused({.batch_size = 1}), "no error");
  EXPECT_EQ(refused({.every_steps = 4, .batch_size = 0, .examples_per_epoch = 5, .warmup_steps = 6}),
            counts + "0, every 4 steps, 5 examples, 6 steps of warm-up");
  EXPECT_EQ(refused({.every_steps = -1, .batch_size = 2}),
            counts + "2, every -1 steps, 0 examples, 0 steps of warm-up");
  EXPECT_EQ(refused({.batch_size = 2, .examples_per_epoch = -1}),
            counts + "2, every 0 steps, -1 examples, 0 steps of warm-up");
  EXPECT_EQ(refused({.batch_size = 2, .warmup_steps = -1}),
            counts + "2, every 0 steps, 0 examples, -1 steps of warm-up");
}

TEST(SummaryCallback, WritesWhereStepPlusOneIsAMultipleWarmUpIncluded) {
  PretendTrainer trainer;
  std::vector<Scalars> rows;
  trainer.monitors().add(std::make_unique<Record>(rows));
  SummaryOptions options{.every_steps = 4, .batch_size = 32, .examples_per_epoch = 320, .warmup_steps = 5};
  options.values = {{"learning_rate", [](const StepView&) { return 0.1; }}, {"total_loss", mean_loss}};
  options.wall_clock = [] { return 1.7e9; };
  run_callback(trainer, std::make_shared<SummaryCallback>(options), {.steps_per_epoch = 12});
  // Local steps -5 .. 6: those before -4, 0 and 4 are -5, -1 and 3; as many steps done: 1, 5, 9.
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].global_step, 1);
  EXPECT_EQ(rows[1].global_step, 5);
  EXPECT_EQ(rows[2].global_step, 9);
  EXPECT_DOUBLE_EQ(rows[1].epoch, 0.5);
  EXPECT_EQ(rows[1].wall_time, 1.7e9);
  EXPECT_EQ(rows[1].phase, "train");
  std::vector<std::string> names;
  std::map<std::string, double> values;
  for (const auto& [name, value] : rows[1].values) {
    names.push_back(name);
    values[name] = value;
  }
  EXPECT_THAT(names, ElementsAre("learning_rate", "total_loss", "images_per_second", "input_share", "compute_share",
                                 "communication_share", "waiting_share", "update_share"));
  EXPECT_NEAR(values["total_loss"], 1.0 / 5, 1e-6);
  EXPECT_NEAR(values["images_per_second"], 320, 1e-9);
  EXPECT_NEAR(values["input_share"], 0.2, 1e-12);
  EXPECT_NEAR(values["compute_share"], 0.5, 1e-12);
  EXPECT_NEAR(values["communication_share"], 0.1, 1e-12);
  EXPECT_NEAR(values["waiting_share"], 0.04, 1e-12);
  EXPECT_NEAR(values["update_share"], 0.2, 1e-12);
}

// The first one who reads a value of a step waits for an accelerator: a callback before it, or the summary itself. That
// is the accelerator's time. On a CPU the step has ended, and reading is no part of it.
TEST(SummaryCallback, WaitingForAnAcceleratorIsAPartOfTheStep) {
  class Waits : public Callback {
   public:
    std::string name() const override { return "waits"; }
    void after_step(Trainer&, const StepView&) override { std::this_thread::sleep_for(std::chrono::milliseconds(125)); }
  };
  for (const bool earlier : {true, false}) {
    for (const bool on_accelerator : {true, false}) {
      PretendTrainer trainer;  // whose steps tell 0.1 seconds
      trainer.on_accelerator = on_accelerator;
      std::vector<Scalars> rows;
      trainer.monitors().add(std::make_unique<Record>(rows));
      SummaryOptions options{.every_steps = 2, .batch_size = 30};
      if (earlier) {
        trainer.add(std::make_shared<Waits>());
      } else {
        options.values = {{"total_loss", [](const StepView&) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(125));
                             return 1.0;
                           }}};
      }
      run_callback(trainer, std::make_shared<SummaryCallback>(options), {.steps_per_epoch = 2});
      ASSERT_EQ(rows.size(), 1U);
      double speed = 0;
      for (const auto& [name, value] : rows[0].values) speed = name == "images_per_second" ? value : speed;
      // 60 images in two steps of at least 0.125 seconds each, or in 0.1 and 0.125; told are 0.2.
      if (on_accelerator) {
        EXPECT_LE(speed, earlier ? 241 : 267) << earlier;
        EXPECT_GT(speed, 0) << earlier;
      } else {
        EXPECT_NEAR(speed, 300, 1e-6) << earlier;
      }
    }
  }
}

TEST(SummaryCallback, WritesNothingWhenOff) {
  PretendTrainer trainer;
  std::vector<Scalars> rows;
  trainer.monitors().add(std::make_unique<Record>(rows));
  run_callback(trainer, std::make_shared<SummaryCallback>(SummaryOptions{.batch_size = 1}), {.steps_per_epoch = 12});
  EXPECT_TRUE(rows.empty());
}

// What a listener heard, a word each.
struct Heard : EvaluationListener {
  explicit Heard(std::vector<std::string>& to) : words(to) {}
  void on_begin(EvaluationTime time, int64_t step) override {
    words.push_back((time == EvaluationTime::kAtTheEnd ? "last " : "begin ") + std::to_string(step));
  }
  void on_result(const Evaluation&, int64_t step) override { words.push_back("result " + std::to_string(step)); }
  void on_resume() override { words.emplace_back("resume"); }
  void on_goal(const std::string& reason) override { words.push_back(reason); }
  void on_training_end() override { words.emplace_back("end"); }
  std::vector<std::string>& words;
};

class EvaluationRun : public ::testing::Test {
 protected:
  std::vector<std::string> heard_;
  std::vector<Scalars> rows_;
  PretendTrainer trainer_;
  EvaluationCallbackOptions options_;

  EvaluationRun() {
    trainer_.monitors().add(std::make_unique<Record>(rows_));
    // The accuracy grows by a tenth every ten steps.
    options_.evaluate = [this] {
      const double top_1 = static_cast<double>(trainer_.global_step()) / 100;
      return Evaluation{.loss = 0.5, .top_1 = top_1, .top_5 = 1, .samples = 1000, .seconds = 4};
    };
    options_.due = [](int64_t done) { return done % 10 == 0; };
    options_.listener = std::make_shared<Heard>(heard_);
    options_.wall_clock = [] { return 1.7e9; };
  }
  void run(int64_t steps) {
    run_callback(trainer_, std::make_shared<EvaluationCallback>(options_), {.steps_per_epoch = steps});
  }
};

TEST_F(EvaluationRun, PausesAndEvaluatesAtTheEnd) {
  run(30);
  EXPECT_THAT(heard_, ElementsAre("begin 10", "result 10", "resume", "begin 20", "result 20", "resume", "end",
                                  "last 30", "result 30"));
  ASSERT_EQ(rows_.size(), 3U);  // not twice at the last step
  EXPECT_EQ(rows_[0].global_step, 10);
  EXPECT_DOUBLE_EQ(rows_[0].epoch, 10.0 / 30);
  EXPECT_EQ(rows_[0].phase, "eval");
  EXPECT_EQ(rows_[2].values[0], (std::pair<std::string, double>{"top_1_accuracy", 0.3}));
  EXPECT_EQ(rows_[2].values[3], (std::pair<std::string, double>{"examples_per_second", 250}));
}

TEST_F(EvaluationRun, MayMeasureMoreAtTheEnd) {
  options_.evaluate_at_end = [this] {
    Evaluation evaluation = options_.evaluate();
    evaluation.more.emplace_back("tta_top_1_accuracy", 0.75);
    return evaluation;
  };
  run(30);
  ASSERT_EQ(rows_.size(), 3U);
  EXPECT_EQ(rows_[1].values.size(), 4U);
  ASSERT_EQ(rows_[2].values.size(), 5U);
  EXPECT_EQ(rows_[2].values[0].second, 0.3) << "also the evaluation itself";
  EXPECT_EQ(rows_[2].values[4], (std::pair<std::string, double>{"tta_top_1_accuracy", 0.75}));
}

TEST_F(EvaluationRun, StopsAtItsGoalWithoutALastEvaluation) {
  options_.goal = [](const Evaluation& evaluation) -> std::optional<std::string> {
    if (evaluation.top_1 < 0.2) return std::nullopt;
    return "good enough";
  };
  run(100);
  EXPECT_EQ(trainer_.global_step(), 20);
  EXPECT_THAT(heard_, ElementsAre("begin 10", "result 10", "resume", "begin 20", "result 20", "good enough", "end"));
  EXPECT_EQ(rows_.size(), 2U);
  EXPECT_EQ(trainer_.stop_reason(), "good enough");
}

TEST_F(EvaluationRun, DoesNotEvaluateWhenASignalStopsTheRun) {
  core::StopSource stop;
  trainer_.set_stop_token(stop.token());
  trainer_.in_step = [&](int64_t step) {
    if (step == 9) stop.request_stop(core::StopReason::kSignal, "SIGINT");
  };
  run(100);
  EXPECT_EQ(trainer_.global_step(), 10);
  EXPECT_TRUE(rows_.empty());
}

TEST_F(EvaluationRun, DoesNotCountTheWarmUp) {
  options_.warmup_steps = 5;
  options_.at_end = false;
  run(20);
  ASSERT_EQ(rows_.size(), 1U);
  EXPECT_EQ(rows_[0].global_step, 15);
}

TEST_F(EvaluationRun, CanCountTheStepsOfAllRuns) {
  trainer_.train({.steps_per_epoch = 7});
  options_.over_all_runs = true;
  options_.at_end = false;
  run_callback(trainer_, std::make_shared<EvaluationCallback>(options_), {.steps_per_epoch = 25, .starting_step = 7});
  ASSERT_EQ(rows_.size(), 2U);
  EXPECT_EQ(rows_[0].global_step, 10);
  EXPECT_EQ(rows_[1].global_step, 20);
}

TEST(EvaluationCallback, NeedsSomethingToEvaluate) {
  EXPECT_THROW(EvaluationCallback({}), core::Error);
}

// Of seven logits that ascend, labels 6 to 2 are among the five largest.
TEST(StepAccuracies, CountTheFirstFiveChoicesOfReplicasThatHaveLabels) {
  StepView view;
  view.replicas = {replica_with_hits(1), ReplicaView(), replica_with_hits(0)};
  view.replicas[0].batch.labels()[1].fill_(2);
  view.replicas[0].batch.labels()[2].fill_(1);
  view.replicas[2].batch.tensors = {};
  const Accuracies accuracies = batch_accuracies(view);
  EXPECT_DOUBLE_EQ(accuracies.top_1, 0.25);
  EXPECT_DOUBLE_EQ(accuracies.top_5, 0.5);
  EXPECT_EQ(batch_accuracies(StepView()).top_5, 0);
}

TEST(MeanLoss, IsThatOfTheReplicasThatHaveOne) {
  StepView view;
  view.replicas.resize(3);
  view.replicas[0].losses.set("cost", at::full({}, 1.0));
  view.replicas[2].losses.set("cost", at::full({}, 4.0));
  EXPECT_EQ(mean_loss(view), 2.5);
  EXPECT_EQ(mean_loss(StepView()), 0);
}

struct PictureRecord : Monitor {
  explicit PictureRecord(std::vector<Images>& to) : pictures(to) {}
  void write(const Scalars&) override {}
  void write_images(const Images& images) override { pictures.push_back(images); }
  std::vector<Images>& pictures;
};

TEST(SummaryCallback, ShowsThePicturesThatAStepHas) {
  PretendTrainer trainer;
  std::vector<Images> pictures;
  trainer.monitors().add(std::make_unique<PictureRecord>(pictures));
  SummaryOptions options{.every_steps = 2, .batch_size = 8};
  options.pictures = {{"input",
                       [](const StepView& view) {
                         return view.global_step == 1 ? at::zeros({2, 4, 3}) : at::Tensor();
                       }},
                      {"filters", [](const StepView&) { return at::Tensor(); }}};
  options.wall_clock = [] { return 1.7e9; };
  run_callback(trainer, std::make_shared<SummaryCallback>(options), {.steps_per_epoch = 4});
  ASSERT_EQ(pictures.size(), 1U) << "the fourth step has none";
  EXPECT_EQ(pictures[0].global_step, 2);
  EXPECT_EQ(pictures[0].wall_time, 1.7e9);
  ASSERT_EQ(pictures[0].values.size(), 1U);
  EXPECT_EQ(pictures[0].values[0].first, "input");
}

TEST_F(EvaluationRun, WithoutPausesIsAtTheEndAlone) {
  options_.due = nullptr;
  run(30);
  EXPECT_THAT(heard_, ElementsAre("last 30", "result 30"));
}

std::vector<std::string> names_of(const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const auto& [name, value] : evaluation_scalars(evaluation, 7, 2.5, 9).values) names.push_back(name);
  return names;
}

TEST(EvaluationScalars, LeaveOutWhatWasNotMeasured) {
  const Evaluation whole{
      .top_1 = 0.25, .samples = 30, .seconds = 1.5, .more = {{"hard_accuracy", 0.5}, {"COCO/AP", 0.125}}};
  EXPECT_THAT(names_of(whole), ElementsAre("top_1_accuracy", "top_5_accuracy", "loss", "examples_per_second",
                                           "hard_accuracy", "COCO/AP"));
  Evaluation part = whole;
  part.shows_top_5 = false;
  EXPECT_THAT(names_of(part), ElementsAre("top_1_accuracy", "loss", "examples_per_second", "hard_accuracy", "COCO/AP"));
  part = whole;
  part.has_loss = false;
  EXPECT_THAT(names_of(part),
              ElementsAre("top_1_accuracy", "top_5_accuracy", "examples_per_second", "hard_accuracy", "COCO/AP"));
  part.has_accuracies = false;
  EXPECT_THAT(names_of(part), ElementsAre("examples_per_second", "hard_accuracy", "COCO/AP"));
  part.more = {{"top_5_accuracy", 0.75}, {"loss", 2}};
  EXPECT_THAT(names_of(part), ElementsAre("examples_per_second", "top_5_accuracy", "loss")) << "metrics of one's own";
  EXPECT_EQ(examples_per_second(whole), 20);
  part.seconds = 0;
  EXPECT_EQ(examples_per_second(part), 0);
  const Scalars scalars = evaluation_scalars(whole, 7, 2.5, 9);
  EXPECT_EQ(scalars.global_step, 7);
  EXPECT_EQ(scalars.epoch, 2.5);
  EXPECT_EQ(scalars.wall_time, 9);
}

}  // namespace
}  // namespace trainyard::train::callbacks_test
