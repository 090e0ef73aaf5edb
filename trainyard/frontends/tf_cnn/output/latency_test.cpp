#include "trainyard/frontends/tf_cnn/output/latency.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::frontends::latency_test {
namespace {

std::vector<double> one_to(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

// The k-th value of 1, 2, ..., n is k: percentile p is ceil(p * n / 100).
TEST(Latency, IsByNearestRank) {
  for (const int count : {1, 2, 3, 7, 10, 50, 99, 100, 101, 200, 1000}) {
    std::vector<double> values = one_to(count);
    core::RandomStream stream(3, "order");
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[stream.below(i)]);
    const Latency latency = latency_of(values);
    const auto rank = [&](int p) { return (p * count) / 100 + ((p * count) % 100 != 0 ? 1 : 0); };
    EXPECT_EQ(latency.p50, rank(50)) << count;
    EXPECT_EQ(latency.p90, rank(90)) << count;
    EXPECT_EQ(latency.p99, rank(99)) << count;
    EXPECT_EQ(latency.max, count);
  }
}

TEST(Latency, OfAHundredValuesIsKnownByHand) {
  const Latency latency = latency_of(one_to(100));
  EXPECT_EQ(latency.p50, 50);
  EXPECT_EQ(latency.p90, 90);
  EXPECT_EQ(latency.p99, 99);
}

TEST(Latency, IsALineOfMilliseconds) {
  EXPECT_EQ(latency_line(32, {0.0125, 0.02, 0.5, 1.25}),
            "latency of a batch of 32: p50 12.50 ms, p90 20.00 ms, p99 500.00 ms, max 1250.00 ms");
}

// Two steps of warm-up and three that count, of two batches each.
TEST(LatencyLog, CountsEachBatchAfterTheWarmUp) {
  struct Steps : train::Trainer {
    void run_step(train::StepView&) override {
      const double second = static_cast<double>(global_step());
      seconds = {second, second + 0.5};
    }
    std::vector<double> seconds;
  } trainer;
  std::vector<std::string> printed;
  Latency told;
  trainer.add(std::make_shared<LatencyLog>(
      LatencyLog::Options{.batch_size = 4,
                          .warmup_steps = 2,
                          .seconds = [&]() -> const std::vector<double>& { return trainer.seconds; },
                          .print = [&](std::string_view line) { printed.emplace_back(line); },
                          .on_latency = [&](const Latency& latency) { told = latency; }}));
  trainer.train({.steps_per_epoch = 5});
  // 2, 2.5, 3, 3.5, 4, 4.5
  ASSERT_EQ(printed.size(), 1U);
  EXPECT_EQ(printed[0], "latency of a batch of 4: p50 3000.00 ms, p90 4500.00 ms, p99 4500.00 ms, max 4500.00 ms");
  EXPECT_EQ(told.p50, 3);
}

}  // namespace
}  // namespace trainyard::frontends::latency_test
