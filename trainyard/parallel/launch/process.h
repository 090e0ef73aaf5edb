// Starts child processes, and reports how they ended.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

struct ProcessToStart {
  std::vector<std::string> arguments;  // the first is the program: a path, or a name that PATH finds
  std::vector<std::string> without;    // variables of this process's environment that are removed
  std::vector<std::string> with;       // "NAME=value" that are added
  // Descriptors that become its standard input, output and error; -1: /dev/null. It gets no others.
  int input = -1, output = -1, error = -1;
  // true: runs in a session of its own, so that signals from a terminal or mpirun to the group of this process do not
  // reach it.
  bool new_session = false;
  int signal_at_our_end = 0;  // signal that the system sends it when the thread that started it ends; 0: none
};

// Starts a process. It begins with no signal blocked or ignored. Throws kNotFound or kIo when the program cannot be
// started.
pid_t start_process(const ProcessToStart& process);

// Returns the path of the program that runs.
[[nodiscard]] std::string own_program();

// How a process ended.
struct ProcessEnd {
  enum class Kind {
    kExited,      // value: its exit code
    kSignalled,   // value: the signal that ended it
    kNotStarted,  // text: why
    kLost,        // its exit status was not seen
  };
  Kind kind = Kind::kLost;
  int value = 0;
  std::string text;

  // Returns the code as shells report it: the exit code, 128 + the signal, 127 when it was not started, 1 when it was
  // lost.
  int code() const;
  // Returns "ended with code 1", "was ended by SIGKILL", ...
  std::string description() const;
};

// Decodes a status of waitpid().
ProcessEnd process_end(int wait_status);

// Returns the signal that requested the stop: SIGINT, SIGUSR1, or else SIGTERM.
int signal_of(const core::StopToken& stop);

// Ends all processes below this one that are left, and waits for them. A process whose parent has ended is seen only
// when this process adopts orphans (PR_SET_CHILD_SUBREAPER). Takes two seconds at most.
void end_descendants();

}  // namespace trainyard::parallel
