// The program: signals, allocator, and the command line of the library.
#include <csignal>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "trainyard/cli/command.h"
#include "trainyard/core/cpu_allocator.h"
#include "trainyard/core/log.h"
#include "trainyard/core/signal_watcher.h"
#include "trainyard/core/stop_token.h"

namespace {

// libgomp lets idle threads of a team spin for milliseconds, which on a machine that is busy with other work makes a
// training step ten times slower. It reads its settings when it is loaded, so a process that wants others must begin
// again with them in its environment. This runs before the libraries' own initialisation: the second start costs
// little.
void restart_with_short_spins(int, char** arguments, char** environment) {
  constexpr std::string_view kNames[] = {"GOMP_SPINCOUNT=", "OMP_WAIT_POLICY="};
  constexpr size_t kMost = 4096;  // variables; no allocation works this early
  static char setting[] = "GOMP_SPINCOUNT=10000";
  static char* extended[kMost + 2];
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    const std::string_view variable = environment[count];
    if (count == kMost || variable.starts_with(kNames[0]) || variable.starts_with(kNames[1]))
      return;  // the user's choice
    extended[count] = environment[count];
  }
  extended[count] = setting;
  execve("/proc/self/exe", arguments, extended);  // where that is not possible, this process goes on as it is
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**,
                                                                             char**) = restart_with_short_spins;

}  // namespace

int main(int argc, char** argv) {
  using namespace trainyard;
  core::StopSource stop;
  // Before any other thread: the signals are blocked in this one, and all others inherit that.
  const core::SignalWatcher signals(
      {SIGINT, SIGTERM},
      [&stop](int signal) {
        core::log::info("{}: finishing the step and saving; once more ends at once", core::signal_name(signal));
        stop.request_stop(core::StopReason::kSignal, core::signal_name(signal));
      },
      [](int signal) { _exit(128 + signal); });
  core::install_cpu_allocator();
  cli::Console console{std::cout, stop.token()};
  return cli::run(std::vector<std::string>(argv + 1, argv + argc), console);
}
