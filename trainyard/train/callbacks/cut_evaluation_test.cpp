// Evaluations that a stop cuts off, and the runs that repeat them.
#include "trainyard/train/callbacks/cut_evaluation.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::cut_evaluation_test {
namespace {

using ::testing::ElementsAre;

TRAINYARD_CALLBACK_CONFORMANCE(CutEvaluation, [] { return std::make_shared<CutEvaluation>(); });

struct Rows : Monitor {
  explicit Rows(std::vector<Scalars>& to) : rows(to) {}
  void write(const Scalars& scalars) override { rows.push_back(scalars); }
  std::vector<Scalars>& rows;
};

// Trains to step 30 from what is saved, with an evaluation every ten steps, and saves.
class CutTraining {
 public:
  CutTraining(std::vector<Scalars>& rows, core::MemoryState& saved) : saved_(saved) {
    trainer_.set_stop_token(stop_.token());
    trainer_.monitors().add(std::make_unique<Rows>(rows));
    trainer_.add(cut_);
    if (!saved_.names().empty()) trainer_.load(saved_);
  }
  // A signal comes in a step, counted from 1, or else in the evaluation after it.
  void stop_at(int64_t step, bool in_evaluation) {
    if (in_evaluation) {
      stopped_evaluation_ = step;
    } else {
      trainer_.in_step = [this, step](int64_t before) {
        if (before + 1 == step) stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
      };
    }
  }
  void train() {
    EvaluationCallbackOptions options{.evaluate = [this] { return evaluate(); },
                                      .due = [](int64_t done) { return done % 10 == 0; },
                                      .over_all_runs = true,
                                      .cut = cut_};
    options.goal = goal;
    trainer_.add(std::make_shared<EvaluationCallback>(options));
    trainer_.train({.steps_per_epoch = 30, .starting_step = trainer_.step_in_epoch()});
    saved_ = core::MemoryState();
    trainer_.save(saved_);
  }
  const PretendTrainer& trainer() const { return trainer_; }
  const CutEvaluation& cut() const { return *cut_; }

  std::function<std::optional<std::string>(const Evaluation&)> goal;

 private:
  Evaluation evaluate() {
    if (trainer_.global_step() == stopped_evaluation_) {
      stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
      throw core::Error(core::ErrorCode::kCancelled, "an evaluation was stopped");
    }
    return {.top_1 = 0.5, .samples = 1};
  }

  core::MemoryState& saved_;
  core::StopSource stop_;
  PretendTrainer trainer_;
  std::shared_ptr<CutEvaluation> cut_ = std::make_shared<CutEvaluation>();
  int64_t stopped_evaluation_ = -1;
};

std::vector<int64_t> steps_of_rows(const std::vector<Scalars>& rows) {
  std::vector<int64_t> steps;
  for (const Scalars& row : rows) steps.push_back(row.global_step);
  return steps;
}

TEST(CutEvaluation, IsRepeatedByTheRunThatContinues) {
  for (const int64_t step : {10, 30}) {
    for (const bool in_evaluation : {true, false}) {
      std::vector<Scalars> rows;
      core::MemoryState saved;
      CutTraining stopped(rows, saved);
      stopped.stop_at(step, in_evaluation);
      stopped.train();
      EXPECT_EQ(stopped.trainer().global_step(), step);
      EXPECT_TRUE(stopped.cut().missing()) << step << " " << in_evaluation;
      EXPECT_EQ(stopped.cut().end().why, in_evaluation ? core::StopReason::kSignal : core::StopReason::kNone);
      EXPECT_EQ(rows.size(), step == 10 ? 0U : 2U);

      CutTraining resumed(rows, saved);
      resumed.train();
      EXPECT_EQ(resumed.trainer().own_steps(), 30 - step);
      EXPECT_THAT(steps_of_rows(rows), ElementsAre(10, 20, 30)) << step << " " << in_evaluation;
      EXPECT_FALSE(resumed.cut().missing());
      EXPECT_TRUE(saved.names("callback/").empty()) << "other checkpoints stay as they were";
    }
  }
}

TEST(CutEvaluation, ThatIsCutOffAgainIsRepeatedLater) {
  std::vector<Scalars> rows;
  core::MemoryState saved;
  for (int i = 0; i < 2; ++i) {
    CutTraining stopped(rows, saved);
    stopped.stop_at(20, /*in_evaluation=*/true);
    stopped.train();
    EXPECT_EQ(stopped.trainer().global_step(), 20);
    EXPECT_TRUE(stopped.cut().missing());
  }
  CutTraining(rows, saved).train();
  EXPECT_THAT(steps_of_rows(rows), ElementsAre(10, 20, 30));
}

TEST(CutEvaluation, MayReachTheGoalOfARunThatThenTakesNoStep) {
  std::vector<Scalars> rows;
  core::MemoryState saved;
  CutTraining stopped(rows, saved);
  stopped.stop_at(10, /*in_evaluation=*/true);
  stopped.train();
  CutTraining resumed(rows, saved);
  resumed.goal = [](const Evaluation&) { return std::optional<std::string>("good enough"); };
  resumed.train();
  EXPECT_EQ(resumed.trainer().global_step(), 10);
  EXPECT_EQ(resumed.trainer().stop_reason(), "good enough");
  EXPECT_THAT(steps_of_rows(rows), ElementsAre(10));
}

// After another step it is too late: what is evaluated would be other weights.
TEST(CutEvaluation, OfAnEarlierStepIsForgotten) {
  std::vector<Scalars> rows;
  core::MemoryState saved;
  CutTraining stopped(rows, saved);
  stopped.stop_at(10, /*in_evaluation=*/true);
  stopped.train();
  PretendTrainer without;
  const auto cut = std::make_shared<CutEvaluation>();
  without.add(cut);
  without.load(saved);
  EXPECT_TRUE(cut->missing());
  without.train({.steps_per_epoch = 30, .starting_step = 10});
  EXPECT_FALSE(cut->missing());
}

}  // namespace
}  // namespace trainyard::train::cut_evaluation_test
