#include "trainyard/core/threads/parallel.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

TEST(Parallel, DoesEachPieceOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    std::vector<std::atomic<int>> done(1000);
    for_each_parallel(done.size(), threads, [&](size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
    for_each_parallel(0, threads, [](size_t) { FAIL(); });
  }
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
}  // namespace trainyard::core
