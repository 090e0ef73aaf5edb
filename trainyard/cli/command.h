// The sub-commands of the program. Each is one file, cli/command_<name>.cpp; the table in cli.cpp names them all.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/core/threads/stop_token.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::cli {

// What a command talks to. Results go to `out`; messages for people go to the log (stderr).
struct Console {
  std::ostream& out;
  core::StopToken stop = core::StopSource().token();  // asked by SIGINT and SIGTERM
  // Starts the program again with "NAME=value" in its environment; returns when that is not possible. Libraries read
  // some settings only when they are loaded. None: the process is somebody else's.
  std::function<void(const std::string& setting)> restart_with{};
};

using Arguments = std::vector<std::string>;

// Exit codes of the program.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;  // the run failed: data, files, memory
inline constexpr int kUsage = 2;    // a flag, name or value is wrong, or not available in this build
inline constexpr int kStoppedBySignal =
    core::kExitStoppedBySignal;  // stopped by SIGINT or SIGTERM after saving; the same command resumes

// Runs `trainyard <arguments>` (without the program's name). Never throws: an error is one line on stderr and a code.
int run(const Arguments& arguments, Console& console);

int run_flags_alone(const Arguments& arguments, Console& console);  // the dialect of tf_cnn_benchmarks
int run_train(const Arguments& arguments, Console& console);
int run_train_ctl(const Arguments& arguments, Console& console);
int run_eval(const Arguments& arguments, Console& console);
int run_launch(const Arguments& arguments, Console& console);
int run_launch_rank(const Arguments& arguments, Console& console);    // parallel/launch/agent.h
int run_launch_keeper(const Arguments& arguments, Console& console);  // parallel/launch/keeper.h
int run_program(const Arguments& arguments, Console& console);
int run_predict(const Arguments& arguments, Console& console);
int run_data(const Arguments& arguments, Console& console);
int run_export(const Arguments& arguments, Console& console);
int run_models(const Arguments& arguments, Console& console);
int run_bench(const Arguments& arguments, Console& console);
int run_suite(const Arguments& arguments, Console& console);
int run_sparsity(const Arguments& arguments, Console& console);
int run_doctor(const Arguments& arguments, Console& console);
int run_help(const Arguments& arguments, Console& console);

}  // namespace trainyard::cli
TRAINYARD_EXPORT_END
