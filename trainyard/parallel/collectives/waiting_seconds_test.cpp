// How long ranks wait for each other, compared with delays that the test makes and measures itself.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::waiting_seconds_test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kDelay = milliseconds(100);
constexpr int kRounds = 5, kRanks = 3;
constexpr double kTolerance = 0.01;  // seconds, a tenth of the delay

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Other programs on the machine may delay a rank anywhere, so a measurement is repeated when its value, which is a
// median, is not below `limit`. An error in the counting is in all of them.
void expect_below(double limit, const std::function<double()>& measure) {
  constexpr int kAttempts = 8;
  double value = measure();
  for (int attempt = 1; attempt < kAttempts && !(value < limit); ++attempt) value = measure();
  EXPECT_LT(value, limit);
}

// What a rank did in a round.
struct Round {
  Clock::time_point called;
  double waiting = 0, all = 0;  // seconds of its call that were waiting, and all
};
using Rounds = std::vector<std::vector<Round>>;  // by rank

// All ranks call an all-reduce in each round, rank 1 after `delay`.
Rounds run_rounds(const Communicators& communicators, int64_t elements, milliseconds delay) {
  Rounds rounds(communicators.size());
  expect_none(on_ranks(communicators, [&](core::Communicator& self) {
    at::Tensor tensor = at::full({elements}, 0.0F);
    for (int round = 0; round < kRounds; ++round) {
      self.barrier();
      const double before = self.waiting_seconds();
      if (self.rank() == 1) std::this_thread::sleep_for(delay);
      const Clock::time_point called = Clock::now();
      self.all_reduce(tensor, core::ReduceOp::kSum);
      rounds[static_cast<size_t>(self.rank())].push_back(
          {called, self.waiting_seconds() - before, core::seconds_since(called)});
    }
  }));
  return rounds;
}

// What a rank should have waited: until the last rank's call.
double expected_waiting(const Rounds& rounds, size_t rank, size_t round) {
  Clock::time_point last = rounds[0][round].called;
  for (const auto& each : rounds) last = std::max(last, each[round].called);
  return core::seconds_between(rounds[rank][round].called, last);
}

// Rank 1 comes late to each round.
void expect_delay_is_seen(const Communicators& communicators) {
  expect_below(kTolerance, [&] {
    const Rounds rounds = run_rounds(communicators, 1000, kDelay);
    double worst = 0;
    for (size_t rank = 0; rank < rounds.size(); ++rank) {
      std::vector<double> errors;
      for (size_t round = 0; round < kRounds; ++round) {
        errors.push_back(std::abs(rounds[rank][round].waiting - expected_waiting(rounds, rank, round)));
      }
      worst = std::max(worst, median(errors));
    }
    return worst;
  });
}

TEST(WaitingSeconds, OfThreadsIsTheDelayOfALateRank) {
  expect_delay_is_seen(make_thread_communicators(kRanks));
}

TEST(WaitingSeconds, OfProcessesIsTheDelayOfALateRank) {
  const auto engines = make_engines(kRanks);
  expect_delay_is_seen(connect(engines, {1, 1, 1}));
}

TEST(WaitingSeconds, OfProcessesThatShareMemoryIsTheDelayOfALateRank) {
  const auto engines = make_engines(kRanks);
  expect_delay_is_seen(connect_by_memory(engines, {1, 1, 1}));
}

TEST(WaitingSeconds, OfReplicasOfOneProcessIsTheDelayOfALateRank) {
  const auto engines = make_engines(2);
  expect_delay_is_seen(connect(engines, {2, 1}));
}

// Ranks that come together and move much have hardly waited. Measures the part of their calls that was waiting, but for
// no late rank, in the round that was disturbed least.
void expect_moving_is_no_waiting(const Communicators& communicators) {
  expect_below(0.5, [&] {
    const Rounds rounds = run_rounds(communicators, 8'000'000, milliseconds(0));
    std::vector<double> parts;
    for (size_t round = 0; round < kRounds; ++round) {
      const double expected = expected_waiting(rounds, 0, round);
      parts.push_back((rounds[0][round].waiting - expected) / (rounds[0][round].all - expected));
    }
    return *std::min_element(parts.begin(), parts.end());
  });
}

TEST(WaitingSeconds, AreWithoutTheMovingOfNumbers) {
  expect_moving_is_no_waiting(make_thread_communicators(2));
  const auto engines = make_engines(2);
  expect_moving_is_no_waiting(connect(engines, {1, 1}));
  expect_moving_is_no_waiting(connect_by_memory(engines, {1, 1}));
}

// A rank that computes while the others come has not waited for them.
void expect_wait_begins_it(const Communicators& communicators) {
  for (const int delays : {1, 3}) {
    expect_below(kTolerance, [&] {
      Clock::time_point waits, came;
      std::vector<double> waiting(2);
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
      return std::abs(waiting[0] - std::max(0.0, core::seconds_between(waits, came)));
    });
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
