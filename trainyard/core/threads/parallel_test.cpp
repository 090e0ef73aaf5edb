#include "trainyard/core/threads/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::core::parallel_test {
namespace {

TEST(Parallel, DoesEachPieceOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    std::vector<std::atomic<int>> done(1000);
    for_each_parallel(done.size(), threads, [&](size_t i) { ++done.at(i); });
    for (const auto& times : done) EXPECT_EQ(times, 1);
    for_each_parallel(0, threads, [](size_t) { FAIL(); });
  }
}

TEST(Parallel, AsManyPiecesAsThreadsAreWorkedOnAtATime) {
  std::mutex mutex;
  std::condition_variable changed;
  int now = 0, most = 0;
  for_each_parallel(9, 3, [&](size_t) {
    std::unique_lock lock(mutex);
    most = std::max(most, ++now);
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return most >= 3; });
    --now;
  });
  EXPECT_EQ(most, 3);
}

TEST(Parallel, ThrowsTheErrorOfTheFirstPiece) {
  for (const int threads : {1, 4}) {
    std::atomic<int> begun = 0;
    try {
      for_each_parallel(10000, threads, [&](size_t i) {
        ++begun;
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
    EXPECT_LT(begun, 5000) << "nothing new is begun after a failure";
  }
}

}  // namespace
}  // namespace trainyard::core::parallel_test
