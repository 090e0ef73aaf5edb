#include "trainyard/train/session/slow_rank_callback.h"

#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/callbacks/run_summary.h"
#include "trainyard/train/session/training_session.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::slow_rank_callback_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;

constexpr int kRanks = 2;
constexpr int64_t kSteps = 20;

// Sleeps, and returns how long that took.
double sleep_for(std::chrono::milliseconds time) {
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(time);
  return core::seconds_since(begin);
}

// Sleeps after each step.
class Sleeper : public Callback {
 public:
  std::string name() const override { return "sleeper"; }
  void after_step(Trainer&, const StepView&) override { seconds += sleep_for(std::chrono::milliseconds(50)); }
  double seconds = 0;
};

// A rank of two that train together. Rank `late` sleeps in each step, before it computes.
struct Rank {
  RunSummary summary;
  double late_seconds = 0;  // that it has slept itself
};

// Returns what rank 0 has said to stderr.
std::string train_ranks(int late, std::array<Rank, kRanks>& ranks) {
  const auto engines = parallel::make_engines(kRanks);
  ::testing::internal::CaptureStderr();
  parallel::on_ranks(kRanks, [&](const Group& group) {
    const auto rank = static_cast<size_t>(group->rank());
    TowerTrainerOptions options = tiny_options();
    options.exchange.variable_update = "horovod";
    options.devices.make_communicators = [&] { return parallel::make_process_communicators(engines[rank], 1); };
    options.hooks.input_pre = [&](int, data::Batch&) {
      if (group->rank() == late) ranks[rank].late_seconds += sleep_for(std::chrono::milliseconds(50));
    };
    TowerTrainer trainer(options, tiny_source(80, 8));
    TrainingSession session(trainer, {.ranks = group});
    session.prepare({});
    session.train({.steps_per_epoch = kSteps});
    ranks[rank].summary = session.summary();
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(SlowRank, AKnownDelayIsWaitingOfTheOtherRankAndIsNamed) {
  for (const int late : {0, 1}) {
    std::array<Rank, kRanks> ranks;
    std::string said;
    double delay = 0;
    // A busy machine delays both of them, too; an error in the counting is in all attempts.
    bool is_near = false;
    for (int attempt = 0; attempt < 4 && !is_near; ++attempt) {
      ranks = {};
      said = train_ranks(late, ranks);
      delay = ranks[static_cast<size_t>(late)].late_seconds;
      const std::vector<StepTimes>& seconds = ranks[0].summary.rank_seconds;
      is_near = std::abs(seconds.at(static_cast<size_t>(1 - late)).waiting - delay) < 0.1 * delay;
    }
    for (const Rank& rank : ranks) {
      const std::vector<StepTimes>& seconds = rank.summary.rank_seconds;
      ASSERT_EQ(seconds.size(), size_t{kRanks});
      EXPECT_NEAR(seconds[static_cast<size_t>(1 - late)].waiting, delay, 0.1 * delay);
      EXPECT_LT(seconds[static_cast<size_t>(late)].waiting, 0.1 * delay);
      for (const StepTimes& times : seconds) EXPECT_LE(times.waiting, times.communication);
      EXPECT_EQ(slowest_rank(seconds), late);
    }
    EXPECT_THAT(said, HasSubstr("rank " + std::to_string(late) + " is slow: the others waited for it for "));
    EXPECT_THAT(said, HasSubstr("of the last 16 steps"));
    EXPECT_EQ(said.find("is slow"), said.rfind("is slow")) << "once, and by rank 0 alone: " << said;
  }
}

TEST(SlowRank, RanksThatAreAlikeAreNotNamed) {
  const auto alike = std::vector<StepTimes>{{10, 1, 7, 1.5, 0.5, false, 0.9}, {10, 1, 7, 1.5, 0.5, false, 0.1}};
  EXPECT_EQ(slow_rank_warning(alike, 16), std::nullopt);
  const auto apart = std::vector<StepTimes>{{10, 1, 7, 1.5, 0.5, false, 1.3}, {10, 1, 7, 1.5, 0.5, false, 0.1}};
  EXPECT_THAT(slow_rank_warning(apart, 16).value_or(""),
              HasSubstr("rank 1 is slow: the others waited for it for 13 % of the time of the last 16 steps, and it "
                        "waited for 1 %"));
}

// The others wait between steps for what rank 0 does there, which is no part of a step.
TEST(SlowRank, CallbacksOfRank0AreWaitedFor) {
  std::array<double, kRanks> slept{};
  parallel::on_ranks(kRanks, [&](const Group& group) {
    class Steps : public Trainer {
     protected:
      void run_step(StepView& view) override { view.times = {.total = 0.01, .compute = 0.01}; }
    };
    Steps trainer;
    const auto sleeper = std::make_shared<Sleeper>();
    TrainingSession session(trainer, {.ranks = group});
    if (group->rank() == 0) session.print(sleeper);
    session.prepare({});
    session.train({.steps_per_epoch = kSteps});
    const std::vector<StepTimes> seconds = session.summary().rank_seconds;
    EXPECT_EQ(slowest_rank(seconds), 0);
    EXPECT_LT(seconds[0].waiting, 0.1);
    slept[static_cast<size_t>(group->rank())] = group->rank() == 0 ? sleeper->seconds : seconds[1].waiting;
  });
  EXPECT_NEAR(slept[1], slept[0], 0.1 * slept[0]);
}

}  // namespace
}  // namespace trainyard::train::slow_rank_callback_test
