// A program's end by signals, in a process of its own.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace trainyard::core {

// Runs `program`, whose result is its exit code, in a child process; once it has written a byte to the descriptor that
// it is given, sends it the signals with a pause between them. Returns waitpid's status, -1 where it never came so far.
inline int status_after(const std::function<int(int ready)>& program, const std::vector<int>& signals) {
  std::array<int, 2> ready{};
  if (::pipe(ready.data()) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(program(ready[1]));
  ::close(ready[1]);
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) return -1;
  ::close(ready[0]);
  for (const int signal : signals) {
    ::kill(child, signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace trainyard::core
