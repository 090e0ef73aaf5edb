#include "trainyard/parallel/launch/keeper.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/launch/launch_folders.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::parallel {
namespace {

using KeeperClock = std::chrono::steady_clock;
constexpr int kKeeperLook = 50;                           // milliseconds between two looks at what has ended
constexpr auto kTimeForMpirun = std::chrono::seconds(3);  // it ends its processes in one, and tells other hosts

// Returns true when launch has closed its end of the pipe.
bool launch_has_gone() {
  pollfd pipe{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&pipe, 1, kKeeperLook) != 1) return false;
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) <= 0;
}

// Waits for the end of `mpirun`, and for those of all orphans that this process has adopted meanwhile.
ProcessEnd wait_for(pid_t mpirun, const core::StopToken& stop) {
  std::optional<KeeperClock::time_point> kill_at;
  for (;;) {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == mpirun) return process_end(status);
    }
    if (!kill_at) {
      if (!launch_has_gone() && !stop.stop_requested()) continue;
      ::kill(mpirun, SIGTERM);
      kill_at = KeeperClock::now() + kTimeForMpirun;
    } else if (KeeperClock::now() >= *kill_at) {
      ::kill(mpirun, SIGKILL);
    }
    ::usleep(1000 * kKeeperLook);
  }
}

}  // namespace

int run_launch_keeper(const std::vector<std::string>& command, const std::vector<std::string>& folders,
                      const core::StopToken& stop) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<core::Socket> held;  // also where launch has been killed, until they are removed below
  for (const std::string& folder : folders) held.push_back(hold_launch_folder(folder));
  ProcessEnd end;
  try {
    // Without a signal at our end: mpirun would leave its agents one second, and they need two to end their ranks.
    const pid_t mpirun =
        start_process({.arguments = command, .output = STDOUT_FILENO, .error = STDERR_FILENO, .new_session = true});
    // mpirun alone has launch's pipes from here on: their end is its end, which launch sees at once.
    const core::Socket nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing.descriptor(), stream);
    end = wait_for(mpirun, stop);
  } catch (const core::Error& error) {
    core::log::error("{}", error.what());
    end = {.kind = ProcessEnd::Kind::kNotStarted, .text = error.what()};
  }
  end_descendants();
  for (const std::string& folder : folders) {
    std::error_code ignored;  // what cannot be removed is no reason to hide how mpirun ended
    std::filesystem::remove_all(folder, ignored);
  }
  return end.code();
}

}  // namespace trainyard::parallel
