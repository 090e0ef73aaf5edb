#include "trainyard/core/threads/signal_watcher.h"

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/signalled_process.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::core::signal_watcher_test {
namespace {

constexpr int kEndedAtOnce = 99;

// A program that works until it is told to stop, then takes `seconds` to finish; returns its exit code.
int work_until_stopped(int ready, double seconds) {
  StopSource stop;
  const SignalWatcher watcher(
      {SIGTERM, SIGINT}, [&](int signal) { stop.request_stop(StopReason::kSignal, signal_name(signal)); },
      [](int) { ::_exit(kEndedAtOnce); });
  // Threads made later do not take the signals.
  std::jthread other([token = stop.token()] { token.wait_for(std::chrono::seconds(20)); });
  if (::write(ready, "x", 1) != 1) return 1;
  if (!stop.token().wait_for(std::chrono::seconds(20))) return 2;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return stop.token().reason() == StopReason::kSignal ? kExitStoppedBySignal : 3;
}

int status_after(const std::vector<int>& signals, double seconds_to_finish) {
  return core::status_after([&](int ready) { return work_until_stopped(ready, seconds_to_finish); }, signals);
}

TEST(SignalWatcher, TheFirstSignalAsksForAStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const int status = status_after({signal}, 0);
    ASSERT_TRUE(WIFEXITED(status)) << signal_name(signal) << " killed it, status " << status;
    EXPECT_EQ(WEXITSTATUS(status), kExitStoppedBySignal);
  }
}

TEST(SignalWatcher, TheSecondSignalEndsTheProcessAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const int status = status_after({SIGINT, SIGTERM}, 15);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kEndedAtOnce);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// What the watcher is for: without it the signal ends the process, and nothing is saved.
TEST(SignalWatcher, OtherSignalsStillKill) {
  const int status = status_after({SIGUSR1}, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

TEST(SignalWatcher, PutsTheMaskBack) {
  sigset_t before, during, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const SignalWatcher watcher(
        {SIGUSR2}, [](int) {}, [](int) {});
    pthread_sigmask(SIG_SETMASK, nullptr, &during);
    EXPECT_EQ(sigismember(&during, SIGUSR2), 1);
    for (int signal = 1; signal < 32; ++signal) {
      if (signal == SIGUSR2) continue;
      EXPECT_EQ(sigismember(&during, signal), sigismember(&before, signal)) << signal;
    }
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR2), sigismember(&before, SIGUSR2));
}

TEST(SignalWatcher, NamesSignals) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGINT), "SIGINT");
  EXPECT_EQ(signal_name(99), "signal 99");
  EXPECT_THROW(SignalWatcher(
                   {999}, [](int) {}, [](int) {}),
               Error);
}

}  // namespace
}  // namespace trainyard::core::signal_watcher_test
