#include "trainyard/core/threads/stop_token.h"

#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core::stop_token_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(StopToken, FirstRequestStays) {
  StopSource source;
  const StopToken token = source.token();
  EXPECT_FALSE(token.stop_requested());
  EXPECT_EQ(token.reason(), StopReason::kNone);
  EXPECT_TRUE(source.request_stop(StopReason::kSignal, "SIGTERM"));
  EXPECT_FALSE(source.request_stop(StopReason::kError, "later"));
  EXPECT_TRUE(token.stop_requested());
  EXPECT_EQ(token.reason(), StopReason::kSignal);
  EXPECT_EQ(token.message(), "SIGTERM");
}

TEST(StopToken, OfManyRequestsOneWins) {
  StopSource source;
  std::atomic<int> accepted = 0;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(ThreadOptions{.name = "request"}, [&, i] {
        if (source.request_stop(StopReason::kRequested, std::to_string(i))) accepted += 1;
      });
    }
  }
  EXPECT_EQ(accepted, 1);
}

TEST(StopToken, WaitEndsWithTheTimeOrTheRequest) {
  StopSource source;
  auto begin = steady_clock::now();
  EXPECT_FALSE(source.token().wait_for(milliseconds(20)));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(20));

  // Waiters wake at the request, not at the end of their time. The bound is loose for loaded machines; a waiter that
  // does not wake takes a year.
  std::vector<Thread> waiters;
  std::atomic<int> woken = 0;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back(ThreadOptions{.name = "waiter"}, [&] {
      if (source.token().wait_for(std::chrono::nanoseconds::max())) woken += 1;
    });
  }
  source.token().wait_for(milliseconds(20));
  begin = steady_clock::now();
  source.request_stop(StopReason::kRequested, "enough");
  for (Thread& waiter : waiters) waiter.join();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(2000));
  EXPECT_EQ(woken, 3);
  EXPECT_TRUE(source.token().wait_for(std::chrono::hours(1)));
}

TEST(StopToken, RequestNeedsAReason) {
  StopSource source;
  EXPECT_THROW(source.request_stop(StopReason::kNone, ""), Error);
  EXPECT_FALSE(source.token().stop_requested());
}

}  // namespace
}  // namespace trainyard::core::stop_token_test
