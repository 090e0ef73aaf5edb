// A process that is killed while it works.
#pragma once

#include <array>
#include <csignal>
#include <functional>

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trainyard::train {

// Forks, lets the child run `work`, which does not return, and kills it so long after it has begun. Call it in
// ASSERT_NO_FATAL_FAILURE().
inline void run_and_kill(useconds_t microseconds, const std::function<void()>& work) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    work();
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::usleep(microseconds);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

}  // namespace trainyard::train
