// Requests that a run stops.
//
// A StopSource is stopped once (by a signal, a callback, an error); code that waits or loops checks its tokens.
// Stopping is cooperative: the trainer finishes the step it is in, saves, and returns.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

enum class StopReason { kNone, kRequested, kSignal, kError };

class StopToken {
 public:
  bool stop_requested() const;
  StopReason reason() const;
  // "SIGTERM", "target accuracy reached", ...
  std::string message() const;
  // Sleeps until stop is requested or the time is over. Returns true when stop was requested.
  bool wait_for(std::chrono::nanoseconds duration) const;

 private:
  friend class StopSource;
  struct State;
  explicit StopToken(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Thread-safe. Not for signal handlers: apps turn signals into requests on a thread of theirs (signal_watcher.h).
class StopSource {
 public:
  StopSource();
  StopToken token() const { return StopToken(state_); }
  // Requests the stop. Returns false, and keeps the first request, when stop was requested before.
  bool request_stop(StopReason reason, std::string message);

 private:
  std::shared_ptr<StopToken::State> state_;
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
