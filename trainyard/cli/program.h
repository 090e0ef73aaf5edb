// The program `trainyard` as a function. A program with models, optimizers or data sets of its own calls it to have all
// commands.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::cli {
struct CommandDescription;  // cli/command_description.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::cli {

// The streams and signals of a command. Results go to `out`; messages go to the log (stderr).
struct Console {
  std::ostream& out;
  core::StopToken stop = core::StopSource().token();  // requested by SIGINT and SIGTERM
  // Starts the program again with "NAME=value" in its environment; returns when that is not possible. Libraries read
  // some settings only when they are loaded. Empty: this process is never restarted.
  std::function<void(const std::string& setting)> restart_with{};
  // Where a command, and those below it, describe themselves instead of running. Null: they run.
  std::vector<CommandDescription>* descriptions = nullptr;
};

using Arguments = std::vector<std::string>;

// Exit codes of the program.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;           // the run failed: data, files, memory
inline constexpr int kUsage = 2;             // a flag, name or value is wrong, or not available in this build
inline constexpr int kStoppedBySignal = 75;  // stopped by SIGINT or SIGTERM after saving; the same command resumes

// Runs `trainyard <arguments>` (without the program's name). Never throws: an error is one line on stderr and a code.
int run(const Arguments& arguments, Console& console);

// The control of the process, which the library leaves to the program.
struct ProcessControl {
  void (*end)(int exit_code) = nullptr;                            // ends the process at once, as _exit does
  std::function<void(const std::string& setting)> restart_with{};  // that of Console
};

// Runs the command as the whole process, with results on std::cout: SIGINT, SIGTERM and SIGUSR1 ask it to stop, a
// second one ends the process with 128 + the signal's number, as the first one does with commands that have nothing to
// save (export, bench layers, ...), and tensors come from core::install_cpu_allocator(). Call
// it before any other thread runs: the signals are blocked in this thread, and later threads inherit that.
int run_process(const Arguments& arguments, const ProcessControl& control);

// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed, so that no file of the run gets such a
// number. Allocates nothing, needs no initialised library, and may run before main.
void open_standard_streams();

}  // namespace trainyard::cli
TRAINYARD_EXPORT_END
