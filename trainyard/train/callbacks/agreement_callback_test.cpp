// Ranks on threads: the same steps for all of them, whoever hears of the end.
#include "trainyard/train/callbacks/agreement_callback.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {
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

// Each rank's steps when `work` has asked rank r's `stop` as it likes.
std::vector<int64_t> steps_of(int ranks, const std::function<void(int rank, core::StopSource& stop)>& work) {
  const uint16_t port = parallel::free_port();
  std::vector<int64_t> steps(static_cast<size_t>(ranks));
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [&, rank] {
      const auto processes = std::make_shared<parallel::Rendezvous>(
          parallel::ProcessRank{.rank = rank, .size = ranks, .master_port = port}, std::chrono::seconds(20));
      core::StopSource stop;
      Steps trainer(rank);
      trainer.add(
          std::make_shared<AgreementCallback>(std::make_shared<parallel::RankAgreement>(processes), stop.token()));
      core::Thread asking({}, [&] { work(rank, stop); });
      trainer.train({.steps_per_epoch = 5000});
      asking.join();
      steps[static_cast<size_t>(rank)] = trainer.global_step();
      processes->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return steps;
}

TEST(AgreementCallback, ASignalOfAnyRankEndsAllAtOneStep) {
  for (const int asked : {0, 2}) {
    const std::vector<int64_t> steps = steps_of(3, [asked](int rank, core::StopSource& stop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (rank == asked) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
    });
    EXPECT_EQ(steps, std::vector<int64_t>(3, steps[0]));
    EXPECT_LT(steps[0], 5000);
  }
}

TEST(RankAgreement, RanksMustGoOnFromOneStep) {
  const uint16_t port = parallel::free_port();
  std::atomic<int> refused = 0;
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [&, rank] {
      const auto processes = std::make_shared<parallel::Rendezvous>(
          parallel::ProcessRank{.rank = rank, .size = 2, .master_port = port}, std::chrono::seconds(20));
      parallel::RankAgreement agreement(processes);
      agreement.require_same_start(7);
      try {
        agreement.require_same_start(7 + rank);
      } catch (const core::Error& error) {
        if (std::string(error.what()).find("expected step 7 as on rank 0, got 8") != std::string::npos) ++refused;
      }
      processes->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace trainyard::train
