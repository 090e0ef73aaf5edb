// The program: how its process starts and ends; all else is trainyard/cli/program.h.
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "trainyard/cli/program.h"
#include "trainyard/core/threads/thread.h"

namespace {

char** program_arguments = nullptr;

// Starts this program again with `setting` ("NAME=value") instead of the environment's value of NAME. Returns when that
// is not possible: this process continues unchanged. Uses no allocation, which does not work yet before the libraries'
// initialisation.
void restart_with(std::string_view setting, char** environment) {
  constexpr size_t kMost = 4096;  // variables
  static char own[256];
  static char* extended[kMost + 2];
  if (setting.size() >= sizeof own) return;
  setting.copy(own, setting.size());
  const std::string_view name = setting.substr(0, setting.find('=') + 1);
  size_t count = 0;
  for (; *environment != nullptr; ++environment) {
    if (std::string_view(*environment).starts_with(name)) continue;
    if (count == kMost) return;
    extended[count++] = *environment;
  }
  extended[count] = own;
  extended[count + 1] = nullptr;
  execve("/proc/self/exe", program_arguments, extended);
}

// libgomp lets idle threads of a team spin for milliseconds, which takes the core from other work, and from the member
// that the team waits for. It reads its settings when it is loaded, so a process that wants others must begin again
// with them in its environment. This runs before the libraries' own initialisation: the second start costs little.
void restart_with_short_spins(int, char** arguments, char** environment) {
  program_arguments = arguments;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("GOMP_SPINCOUNT=") || text.starts_with("OMP_WAIT_POLICY=")) return;  // the user's choice
  }
  restart_with(trainyard::core::kShortSpins, environment);
}

// Libraries may open files when they are initialised, which must not get the numbers of the standard streams.
void before_libraries(int count, char** arguments, char** environment) {
  trainyard::cli::open_standard_streams();
  restart_with_short_spins(count, arguments, environment);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = before_libraries;

}  // namespace

int main(int argc, char** argv) {
  return trainyard::cli::run_process(
      trainyard::cli::Arguments(argv + 1, argv + argc),
      {.end = [](int code) { _exit(code); },
       .restart_with = [](const std::string& setting) { restart_with(setting, environ); }});
}
