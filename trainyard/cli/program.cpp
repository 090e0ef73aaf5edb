#include "trainyard/cli/program.h"

#include <csignal>
#include <iostream>

#include "trainyard/cli/command.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/system/process_end.h"
#include "trainyard/core/system/standard_streams.h"
#include "trainyard/core/threads/signal_watcher.h"

namespace trainyard::cli {

static_assert(kStoppedBySignal == core::kExitStoppedBySignal);

int run_process(const Arguments& arguments, const ProcessControl& control) {
  core::StopSource stop;
  // Before any other thread: the signals are blocked in this one, and all others inherit that.
  const core::SignalWatcher signals(
      {SIGINT, SIGTERM, SIGUSR1},  // mpirun hands on the last one without killing anybody
      [&stop, end = control.end, stops = stops_on_request(arguments)](int signal) {
        if (!stops) {
          core::log::info("{}: the command ends here", core::signal_name(signal));
          return end(128 + signal);
        }
        core::log::info("{}: finishing the step and saving; once more ends at once", core::signal_name(signal));
        stop.request_stop(core::StopReason::kSignal, core::signal_name(signal));
      },
      [end = control.end](int signal) { end(128 + signal); });
  core::install_process_end(control.end);
  core::install_cpu_allocator();
  Console console{std::cout, stop.token(), control.restart_with};
  return run(arguments, console);
}

void open_standard_streams() {
  core::open_standard_streams();
}

}  // namespace trainyard::cli
