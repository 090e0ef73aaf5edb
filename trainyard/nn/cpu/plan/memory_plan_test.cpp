#include "trainyard/nn/cpu/plan/memory_plan.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"

namespace trainyard::nn::cpu::memory_plan_test {
namespace {

struct Interval {
  int64_t bytes = 0;
  int first = -1, last = -1;  // -1: never used
};

MemoryPlan placed(const std::vector<Interval>& intervals) {
  MemoryPlan plan;
  for (const Interval& interval : intervals) {
    const BufferId id = plan.add(interval.bytes);
    if (interval.first < 0) continue;
    plan.use(id, interval.last);  // moments come in any order
    plan.use(id, interval.first);
    plan.use(id, (interval.first + interval.last) / 2);
  }
  plan.place();
  return plan;
}

bool live_together(const Interval& a, const Interval& b) {
  return a.first >= 0 && b.first >= 0 && a.first <= b.last && b.first <= a.last;
}

// What must hold for any plan.
void expect_sound(const MemoryPlan& plan, const std::vector<Interval>& intervals) {
  ASSERT_EQ(plan.size(), static_cast<int>(intervals.size()));
  for (int i = 0; i < plan.size(); ++i) {
    const Interval& a = intervals[static_cast<size_t>(i)];
    EXPECT_EQ(plan.bytes({i}), (a.bytes + 63) / 64 * 64);
    if (a.first < 0 || a.bytes == 0) continue;
    EXPECT_GE(plan.offset({i}), 0);
    EXPECT_EQ(plan.offset({i}) % 64, 0);
    EXPECT_LE(plan.offset({i}) + plan.bytes({i}), plan.total_bytes());
    for (int j = 0; j < i; ++j) {
      if (!live_together(a, intervals[static_cast<size_t>(j)])) continue;
      const bool apart = plan.offset({i}) + plan.bytes({i}) <= plan.offset({j}) ||
                         plan.offset({j}) + plan.bytes({j}) <= plan.offset({i});
      EXPECT_TRUE(apart) << "buffers " << i << " and " << j << " overlap while both live";
    }
  }
}

// The most bytes alive at one moment, by trying all of them.
int64_t most_alive(const std::vector<Interval>& intervals) {
  int64_t most = 0;
  int end = 0;
  for (const Interval& interval : intervals) end = std::max(end, interval.last);
  for (int moment = 0; moment <= end; ++moment) {
    int64_t alive = 0;
    for (const Interval& interval : intervals) {
      if (interval.first >= 0 && interval.first <= moment && moment <= interval.last) {
        alive += (interval.bytes + 63) / 64 * 64;
      }
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST(MemoryPlan, ChainNeedsTwoPlaces) {
  std::vector<Interval> chain;
  for (int i = 0; i < 20; ++i) chain.push_back({640, i, i + 1});
  const MemoryPlan plan = placed(chain);
  expect_sound(plan, chain);
  EXPECT_EQ(plan.total_bytes(), 1280);
}

// What a forward makes is needed until the backward that undoes it: nothing can be shared, and nothing is wasted.
TEST(MemoryPlan, ForwardAndBackwardNest) {
  std::vector<Interval> nested;
  int64_t sum = 0;
  for (int i = 0; i < 10; ++i) {
    nested.push_back({64 * (i + 1), i, 30 - i});
    sum += 64 * (i + 1);
  }
  const MemoryPlan plan = placed(nested);
  expect_sound(plan, nested);
  EXPECT_EQ(plan.total_bytes(), sum);
}

TEST(MemoryPlan, FillsTheTightestGap) {
  // At moment 1 the first and the third have gone: gaps of 256 and 192 bytes below what stays.
  const std::vector<Interval> intervals{{1024, 0, 2}, {256, 0, 0}, {200, 0, 2}, {192, 0, 0}, {190, 0, 2}, {180, 1, 1}};
  const MemoryPlan plan = placed(intervals);
  expect_sound(plan, intervals);
  EXPECT_EQ(plan.offset({5}), plan.offset({3}));
}

// Maps of pages' size would all begin at the same place of a page; and a large one's place is as good for the next.
TEST(MemoryPlan, LargeBuffersBeginAtDifferentPlacesOfPages) {
  const std::vector<Interval> intervals(16, {1 << 20, 0, 1});
  const MemoryPlan plan = placed(intervals);
  expect_sound(plan, intervals);
  std::set<int64_t> places;
  for (int i = 0; i < plan.size(); ++i) places.insert(plan.offset({i}) % 4096);
  EXPECT_EQ(places.size(), 16U);
  const MemoryPlan shared = placed({{1 << 20, 0, 1}, {3 << 20, 0, 2}, {1 << 20, 2, 3}});
  EXPECT_EQ(shared.offset({0}), shared.offset({2}));
}

TEST(MemoryPlan, LeavesAGapBehindLargeBuffersAlone) {
  constexpr int64_t kMebibyte = 1 << 20, kGap = 4352;
  const std::vector<Interval> intervals{{kMebibyte, 0, 1}, {kMebibyte - 64, 0, 1}, {64, 0, 1}};
  const MemoryPlan plan = placed(intervals);
  expect_sound(plan, intervals);
  EXPECT_EQ(plan.offset({0}), 0);
  EXPECT_EQ(plan.offset({1}), kMebibyte + kGap);
  EXPECT_EQ(plan.offset({2}), 2 * kMebibyte + kGap - 64);
  EXPECT_EQ(plan.total_bytes(), 2 * kMebibyte + kGap);
}

TEST(MemoryPlan, NeedsNothingForWhatIsNeverUsed) {
  const std::vector<Interval> intervals{{1 << 20}, {100, 3, 5}, {0, 0, 9}, {1 << 20}};
  const MemoryPlan plan = placed(intervals);
  expect_sound(plan, intervals);
  EXPECT_EQ(plan.total_bytes(), 128);
  EXPECT_EQ(placed({}).total_bytes(), 0);
}

// Random lives: short ones, as scratch has, and long ones, as activations have.
std::vector<Interval> random_intervals(uint64_t seed) {
  core::RandomStream stream(seed, "memory_plan_test");
  const auto below = [&](uint64_t end) { return static_cast<int>(stream.below(end)); };
  const int moments = 1 + below(60);
  std::vector<Interval> intervals(1 + stream.below(80));
  for (Interval& interval : intervals) {
    interval.bytes = below(4) == 0 ? below(100) : 1 + below(100000);
    if (below(12) == 0) continue;
    interval.first = below(static_cast<uint64_t>(moments));
    const int longest = moments - interval.first;
    interval.last = interval.first + below(static_cast<uint64_t>(below(2) == 0 ? std::min(longest, 4) : longest));
  }
  return intervals;
}

TEST(MemoryPlan, HoldsForRandomLives) {
  double worst = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::vector<Interval> intervals = random_intervals(seed);
    const MemoryPlan plan = placed(intervals);
    expect_sound(plan, intervals);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    const int64_t least = most_alive(intervals);
    EXPECT_GE(plan.total_bytes(), least);
    if (least > 0) worst = std::max(worst, static_cast<double>(plan.total_bytes()) / static_cast<double>(least));
  }
  // No bound is known for the greedy placement; this is what it reaches here, and a worse one would not.
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LE(worst, 1.25);
}

// Equal sizes, in order of first use: the greedy placement is then the colouring of an interval graph, which is exact.
TEST(MemoryPlan, IsExactForEqualSizes) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<Interval> intervals = random_intervals(seed);
    for (Interval& interval : intervals) interval.bytes = 4096;
    std::stable_sort(intervals.begin(), intervals.end(),
                     [](const Interval& a, const Interval& b) { return a.first < b.first; });
    const MemoryPlan plan = placed(intervals);
    expect_sound(plan, intervals);
    EXPECT_EQ(plan.total_bytes(), most_alive(intervals)) << "seed " << seed;
  }
}

TEST(MemoryPlan, ABufferThatGrowsHasTheMostBytesThatWereAskedFor) {
  MemoryPlan plan;
  const BufferId growing = plan.add(100), other = plan.add(64);
  for (const BufferId id : {growing, other}) plan.use(id, 0);
  plan.enlarge(growing, 1000);
  plan.enlarge(growing, 200);
  plan.place();
  EXPECT_EQ(plan.bytes(growing), 1024);
  EXPECT_EQ(plan.bytes(other), 64);
  EXPECT_EQ(plan.total_bytes(), 1024 + 64);
}

}  // namespace
}  // namespace trainyard::nn::cpu::memory_plan_test
