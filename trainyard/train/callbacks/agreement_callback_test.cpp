// Ranks on threads: the same steps for all of them, whoever hears of the end.
#include "trainyard/train/callbacks/agreement_callback.h"

#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train::agreement_callback_test {
namespace {

// Steps that take each rank another time.
class Steps : public Trainer {
 public:
  explicit Steps(int rank) : rank_(rank) {}

 protected:
  void run_step(StepView&) override { std::this_thread::sleep_for(std::chrono::microseconds(300 * rank_)); }

 private:
  int rank_;
};

// Asks one rank for the end after a step.
class Asking : public Callback {
 public:
  Asking(std::optional<int64_t> step, std::optional<core::Error> error) : step_(step), error_(std::move(error)) {}
  std::string name() const override { return "asking"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    if (view.global_step != step_) return;
    if (error_) return trainer.fail(*error_);
    trainer.stop("good enough");
  }

 private:
  std::optional<int64_t> step_;
  std::optional<core::Error> error_;
};

struct Ended {
  int64_t steps = 0;
  std::string reason;
  bool by_signal = false;
  bool operator==(const Ended&) const = default;
};

std::vector<Ended> train_on_ranks(int ranks, const std::function<void(int rank, core::StopSource& stop)>& work,
                                  std::optional<int> asking_rank = std::nullopt, int64_t last = 5000) {
  std::vector<Ended> ends(static_cast<size_t>(ranks));
  parallel::on_ranks(ranks, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    core::StopSource stop;
    Steps trainer(group->rank());
    trainer.set_stop_token(stop.token());
    trainer.add(std::make_shared<Asking>(group->rank() == asking_rank ? std::optional<int64_t>(3) : std::nullopt,
                                         std::nullopt));
    trainer.add(std::make_shared<AgreementCallback>(std::make_shared<parallel::RankAgreement>(group)));
    core::Thread asking({}, [&] { work(group->rank(), stop); });
    trainer.train({.steps_per_epoch = last});
    asking.join();
    ends[static_cast<size_t>(group->rank())] = {trainer.global_step(), trainer.stop_reason(),
                                                trainer.stopped_by_signal()};
  });
  return ends;
}

TEST(AgreementCallback, ASignalOfAnyRankEndsAllAtOneStep) {
  for (const int asked : {0, 2}) {
    const std::vector<Ended> ends = train_on_ranks(3, [asked](int rank, core::StopSource& stop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (rank == asked) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
    });
    EXPECT_EQ(ends, std::vector<Ended>(3, ends[0]));
    EXPECT_LT(ends[0].steps, 5000);
    EXPECT_EQ(ends[0].reason, "SIGTERM");
    EXPECT_TRUE(ends[0].by_signal);
  }
}

TEST(AgreementCallback, SignalsOfAllRanksAtOnceEndAllAtOneStep) {
  const std::vector<Ended> ends = train_on_ranks(3, [](int rank, core::StopSource& stop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + rank));
    stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  });
  EXPECT_EQ(ends, std::vector<Ended>(3, ends[0]));
  EXPECT_LT(ends[0].steps, 5000);
}

// A rank that stops by itself would leave the others waiting for its gradients.
TEST(AgreementCallback, WhatACallbackOfOneRankAsksForEndsAll) {
  for (const int asking : {0, 1}) {
    const std::vector<Ended> ends = train_on_ranks(
        2, [](int, core::StopSource&) {}, asking);
    EXPECT_EQ(ends, std::vector<Ended>(2, ends[0]));
    EXPECT_GE(ends[0].steps, 4);
    EXPECT_LT(ends[0].steps, 5000);
    EXPECT_EQ(ends[0].reason, "good enough");
    EXPECT_FALSE(ends[0].by_signal);
  }
}

TEST(AgreementCallback, WithoutAWishAllStepsAreDone) {
  const std::vector<Ended> ends = train_on_ranks(
      2, [](int, core::StopSource&) {}, std::nullopt, 20);
  EXPECT_EQ(ends, std::vector<Ended>(2, Ended{20, "", false}));
}

// The others hear of it by the process group.
TEST(AgreementCallback, AnErrorEndsItsRankAtOnce) {
  parallel::on_ranks(1, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    Steps trainer(0);
    trainer.add(std::make_shared<Asking>(3, core::Error(core::ErrorCode::kIo, "a watcher saw it")));
    trainer.add(std::make_shared<AgreementCallback>(std::make_shared<parallel::RankAgreement>(group)));
    EXPECT_THROW(trainer.train({.steps_per_epoch = 100}), core::Error);
    EXPECT_EQ(trainer.global_step(), 4);
  });
}

}  // namespace
}  // namespace trainyard::train::agreement_callback_test
