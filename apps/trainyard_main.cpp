// The program: how its process starts and ends; all else is trainyard/cli/program.h.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "trainyard/cli/program.h"
#include "trainyard/core/threads/thread.h"

namespace {

char** program_arguments = nullptr;

// Starts this program again with `settings` ("NAME=value") instead of the environment's values of these names. Returns
// when that is not possible: this process continues unchanged. Uses no allocation, which does not work yet before the
// libraries' initialisation.
void restart_with(std::initializer_list<std::string_view> settings, char** environment) {
  constexpr size_t kMost = 4096, kMostSettings = 2;  // variables
  static char own[kMostSettings][256];
  static char* extended[kMost + kMostSettings + 1];
  const auto is_replaced = [&](std::string_view variable) {
    return std::any_of(settings.begin(), settings.end(), [&](std::string_view setting) {
      return variable.starts_with(setting.substr(0, setting.find('=') + 1));
    });
  };
  size_t count = 0;
  for (; *environment != nullptr; ++environment) {
    if (is_replaced(*environment)) continue;
    if (count == kMost) return;
    extended[count++] = *environment;
  }
  if (settings.size() > kMostSettings) return;
  char(*to)[256] = own;
  for (const std::string_view setting : settings) {
    if (setting.size() >= sizeof *to) return;
    setting.copy(*to, setting.size());
    extended[count++] = *to++;
  }
  extended[count] = nullptr;
  execve("/proc/self/exe", program_arguments, extended);
}

// libgomp lets idle threads of a team spin for milliseconds, which takes the core from other work, and from the member
// that the team waits for, or hardly at all, which costs a system call and a wait for the sleeping core at nearly every
// meeting (core/threads/thread.h). It reads its settings when it is loaded, so a process that wants others must begin
// again with them in its environment. This runs before the libraries' own initialisation: the second start costs
// little.
void restart_with_short_spins(int, char** arguments, char** environment) {
  program_arguments = arguments;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("GOMP_SPINCOUNT=") || text.starts_with("OMP_WAIT_POLICY=")) return;  // the user's choice
  }
  restart_with({trainyard::core::kShortSpins, trainyard::core::kSpinsOfManyThreads}, environment);
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
       .restart_with = [](const std::string& setting) { restart_with({setting}, environ); }});
}
