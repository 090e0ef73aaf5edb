// How long ranks wait for each other, compared with delays that the test makes and measures itself.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::waiting_seconds_test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kDelay = milliseconds(100);
constexpr int kRounds = 4;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

// What each rank should have waited: until the last rank's call, in each round.
std::vector<double> expected_waiting(const std::vector<std::vector<Clock::time_point>>& calls) {
  std::vector<double> waiting(calls.size());
  for (int round = 0; round < kRounds; ++round) {
    const auto at = static_cast<size_t>(round);
    Clock::time_point last = calls[0][at];
    for (const auto& rank : calls) last = std::max(last, rank[at]);
    for (size_t rank = 0; rank < calls.size(); ++rank) waiting[rank] += seconds_between(calls[rank][at], last);
  }
  return waiting;
}

// Rank 1 comes late to each round.
void expect_delay_is_seen(const Communicators& communicators) {
  std::vector<std::vector<Clock::time_point>> calls(communicators.size());
  std::vector<double> waiting(communicators.size());
  expect_none(on_ranks(communicators, [&](core::Communicator& self) {
    const auto rank = static_cast<size_t>(self.rank());
    at::Tensor tensor = at::full({1000}, 1.0F);
    self.barrier();
    const double before = self.waiting_seconds();
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 1) std::this_thread::sleep_for(kDelay);
      calls[rank].push_back(Clock::now());
      self.all_reduce(tensor, core::ReduceOp::kSum);
    }
    waiting[rank] = self.waiting_seconds() - before;
  }));
  const std::vector<double> expected = expected_waiting(calls);
  const double delay = kRounds * std::chrono::duration<double>(kDelay).count();
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    EXPECT_NEAR(waiting[rank], expected[rank], 0.1 * delay) << "rank " << rank;
  }
  EXPECT_GT(waiting[0], 0.8 * delay);
  EXPECT_LT(waiting[1], 0.2 * delay) << "the others wait for it";
}

TEST(WaitingSeconds, OfThreadsIsTheDelayOfALateRank) {
  expect_delay_is_seen(make_thread_communicators(3));
}

TEST(WaitingSeconds, OfProcessesIsTheDelayOfALateRank) {
  const auto engines = make_engines(3);
  expect_delay_is_seen(connect(engines, {1, 1, 1}));
}

TEST(WaitingSeconds, OfProcessesThatShareMemoryIsTheDelayOfALateRank) {
  const auto engines = make_engines(3);
  expect_delay_is_seen(connect_by_memory(engines, {1, 1, 1}));
}

TEST(WaitingSeconds, OfReplicasOfOneProcessIsTheDelayOfALateRank) {
  const auto engines = make_engines(2);
  expect_delay_is_seen(connect(engines, {2, 1}));
}

// Ranks that come together and move much have hardly waited.
void expect_moving_is_no_waiting(const Communicators& communicators) {
  std::vector<std::vector<Clock::time_point>> calls(communicators.size());
  std::vector<double> waiting(communicators.size()), seconds(communicators.size());
  expect_none(on_ranks(communicators, [&](core::Communicator& self) {
    const auto rank = static_cast<size_t>(self.rank());
    at::Tensor tensor = at::full({8'000'000}, 0.0F);
    for (int round = 0; round < kRounds; ++round) {
      self.barrier();
      const double before = self.waiting_seconds();
      calls[rank].push_back(Clock::now());
      self.all_reduce(tensor, core::ReduceOp::kSum);
      seconds[rank] += seconds_between(calls[rank].back(), Clock::now());
      waiting[rank] += self.waiting_seconds() - before;
    }
  }));
  const std::vector<double> expected = expected_waiting(calls);
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    EXPECT_LT(waiting[rank] - expected[rank], 0.5 * (seconds[rank] - expected[rank])) << "rank " << rank;
  }
}

TEST(WaitingSeconds, AreWithoutTheMovingOfNumbers) {
  expect_moving_is_no_waiting(make_thread_communicators(2));
  const auto engines = make_engines(2);
  expect_moving_is_no_waiting(connect(engines, {1, 1}));
  expect_moving_is_no_waiting(connect_by_memory(engines, {1, 1}));
}

// A rank that computes while the others come has not waited for them.
void expect_wait_begins_it(const Communicators& communicators) {
  std::vector<double> waiting(2);
  for (const int delays : {1, 3}) {
    Clock::time_point waits, came;
    expect_none(on_ranks(communicators, [&](core::Communicator& self) {
      at::Tensor tensor = at::full({1000}, 1.0F);
      self.barrier();
      const double before = self.waiting_seconds();
      if (self.rank() == 1) {
        std::this_thread::sleep_for(delays * kDelay);
        came = Clock::now();
      }
      const auto pending = self.start_all_reduce(tensor, core::ReduceOp::kSum);
      if (self.rank() == 0) {
        std::this_thread::sleep_for(2 * kDelay);
        waits = Clock::now();
      }
      pending->wait();
      waiting[static_cast<size_t>(self.rank())] = self.waiting_seconds() - before;
    }));
    const double tolerance = 0.1 * std::chrono::duration<double>(kDelay).count();
    EXPECT_NEAR(waiting[0], seconds_between(waits, came), tolerance) << delays;
    EXPECT_LT(waiting[1], tolerance) << delays;
  }
}

TEST(WaitingSeconds, OfAStartedAllReduceBeginsWithItsWait) {
  const auto engines = make_engines(2);
  expect_wait_begins_it(connect(engines, {1, 1}));
}

TEST(WaitingSeconds, OfAStartedAllReduceInSharedMemoryBeginsWithItsWait) {
  const auto engines = make_engines(2);
  expect_wait_begins_it(connect_by_memory(engines, {1, 1}));
}

}  // namespace
}  // namespace trainyard::parallel::waiting_seconds_test
