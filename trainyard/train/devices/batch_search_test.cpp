#include "trainyard/train/devices/batch_search.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::train::batch_search_test {
namespace {

// Finds the batch of a memory of 10 bytes and 3 an image, and looks that no batch was asked for twice.
FoundBatch find_in(int64_t budget, int64_t most = 1 << 20, std::vector<int64_t>* all = nullptr) {
  std::set<int64_t> asked;
  const FoundBatch found = search_largest_batch(
      [&](int64_t batch) {
        EXPECT_TRUE(asked.insert(batch).second) << batch << " twice";
        EXPECT_GE(batch, 1);
        EXPECT_LE(batch, most);
        if (all != nullptr) all->push_back(batch);
        return 10 + 3 * batch;
      },
      budget, most);
  EXPECT_EQ(found.asked, static_cast<int>(asked.size()));
  return found;
}

TEST(BatchSearch, FindsTheLastOneThatFits) {
  for (int64_t budget = 13; budget < 400; ++budget) {
    SCOPED_TRACE(budget);
    const FoundBatch found = find_in(budget);
    EXPECT_EQ(found.batch, (budget - 10) / 3);
    EXPECT_EQ(found.bytes, 10 + 3 * found.batch);
    EXPECT_EQ(found.bytes_beyond, 10 + 3 * (found.batch + 1));
  }
}

TEST(BatchSearch, StopsAtTheMost) {
  for (int64_t most = 1; most < 70; ++most) {
    SCOPED_TRACE(most);
    const FoundBatch all = find_in(1000, most);
    EXPECT_EQ(all.batch, most);
    EXPECT_FALSE(all.bytes_beyond.has_value());
    EXPECT_EQ(find_in(10 + 3 * 37, most).batch, std::min<int64_t>(most, 37));
  }
}

TEST(BatchSearch, DoublesAndThenHalves) {
  std::vector<int64_t> asked;
  find_in(10 + 3 * 11, 1 << 20, &asked);
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 2, 4, 8, 16, 12, 10, 11}));
}

TEST(BatchSearch, GivesOneThatFitsAlsoWhereMemoryDoesNotGrow) {
  // Kernels may take less memory for a larger batch.
  const auto bytes_of = [](int64_t batch) { return batch % 5 == 4 ? 1000 : batch; };
  const FoundBatch found = search_largest_batch(bytes_of, 100, 1 << 20);
  EXPECT_LE(bytes_of(found.batch), 100);
  EXPECT_GT(bytes_of(found.batch + 1), 100);
}

TEST(BatchSearch, RefusesWhereOneImageDoesNotFit) {
  EXPECT_EQ(core::code_of([] { find_in(12); }), core::ErrorCode::kNoSpace);
  EXPECT_THAT(core::message_of([] { find_in(12); }, core::ErrorCode::kNoSpace),
              core::Says("batch of one image: expected at most 12 bytes, got 13 bytes", "16-bit floats"));
}

TEST(MemoryBudget, IsThreeQuartersOfWhatIsAllowedOrWhatIsFree) {
  EXPECT_EQ(usual_memory_budget(1600, {}, 1500).bytes, 1200);
  EXPECT_EQ(usual_memory_budget(1600, 800, 1500).bytes, 600);
  EXPECT_EQ(usual_memory_budget(1600, 8000, 1500).bytes, 1200) << "a limit above what there is";
  EXPECT_FALSE(usual_memory_budget(1600, {}, 1200).free_only);
  EXPECT_EQ(usual_memory_budget(1600, {}, 1199).bytes, 1100) << "in sixteenths of all";
  EXPECT_EQ(usual_memory_budget(1600, {}, 1100).bytes, 1100);
  EXPECT_TRUE(usual_memory_budget(1600, {}, 1199).free_only);
  EXPECT_EQ(usual_memory_budget(1600, {}, 0).bytes, 1200) << "nobody says what is free";
  EXPECT_EQ(usual_memory_budget(1, {}, 0).bytes, 0) << "of one byte";
  for (const int64_t machine : {0, -1}) {
    EXPECT_EQ(core::message_of([machine] { usual_memory_budget(machine, {}, 5); }, core::ErrorCode::kUnsupported),
              "the system does not say how much memory there is: MemTotal in /proc/meminfo; pass "
              "--batch_size_memory_mib");
  }
}

// Finds a batch of which `capacity` fit, and checks that no size costs two trials.
MeasuredBatch measured(int64_t capacity, int64_t first, int64_t most = 1 << 20, double tolerance = 0.05) {
  std::set<int64_t> tried;
  return search_measured_batch(
      [&](int64_t batch) {
        EXPECT_TRUE(tried.insert(batch).second) << batch << " twice";
        EXPECT_GE(batch, 1);
        EXPECT_LE(batch, most);
        return batch <= capacity;
      },
      first, most, tolerance);
}

TEST(BatchSearch, MeasuresWithinItsTolerance) {
  for (const int64_t capacity : {1, 2, 3, 7, 19, 20, 21, 64, 100, 1000, 12345}) {
    for (const int64_t first : {1, 5, 64, 4000}) {
      SCOPED_TRACE(fmt::format("{} from {}", capacity, first));
      const MeasuredBatch found = measured(capacity, first);
      EXPECT_LE(found.batch, capacity);
      EXPECT_GT(found.beyond, capacity);
      EXPECT_GE(static_cast<double>(found.batch), 0.95 * static_cast<double>(capacity));
      // What is 5 % larger fails.
      EXPECT_GT(std::max<double>(static_cast<double>(found.batch) + 1, 1.05 * static_cast<double>(found.batch)) + 1e-9,
                static_cast<double>(found.beyond) - 1e-9);
    }
  }
  EXPECT_EQ(measured(1000, 1, 1 << 20, 0).batch, 1000) << "without a tolerance it is exact";
}

TEST(BatchSearch, MeasuresNoMoreThanTheMost) {
  const MeasuredBatch all = measured(1000, 3, 70);
  EXPECT_EQ(all.batch, 70);
  EXPECT_EQ(all.beyond, 0);
  EXPECT_EQ(measured(1000, 500, 70).batch, 70);
  EXPECT_EQ(core::code_of([] { measured(0, 64); }), core::ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace trainyard::train::batch_search_test
