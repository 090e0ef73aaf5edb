// Asking a run to stop, and the one order in which it does.
//
// A StopSource is asked once (by a signal, a callback, an error); its tokens tell everyone who waits or loops. Stopping
// is cooperative: the trainer finishes the step it is in, saves, and returns. Threads then end in the order of Stage.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::core {

enum class StopReason { kNone, kRequested, kSignal, kError };

class StopToken {
 public:
  bool stop_requested() const;
  StopReason reason() const;
  // "SIGTERM", "target accuracy reached", ...
  std::string message() const;
  // Sleeps until stop is requested or the time is over; true when stop was requested.
  bool wait_for(std::chrono::nanoseconds duration) const;

 private:
  friend class StopSource;
  struct State;
  explicit StopToken(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Thread-safe; the first request stays. Not for signal handlers: apps turn signals into requests on a thread of theirs.
class StopSource {
 public:
  StopSource();
  StopToken token() const { return StopToken(state_); }
  // False when stop was requested before.
  bool request_stop(StopReason reason, std::string message);

 private:
  std::shared_ptr<StopToken::State> state_;
};

// The stages of a shutdown, first to last. What produces ends before what consumes it, and logs end last.
enum class Stage { kInput, kCompute, kCommunication, kCheckpoints, kMonitors, kLogs };

// Runs registered actions in the order of their stage, within a stage the newest first, each once. An action that
// throws does not keep the others from running; the first error is thrown at the end.
class Shutdown {
 public:
  ~Shutdown();  // runs what is left; errors are logged
  void add(Stage stage, std::string name, std::function<void()> action);
  void run();

 private:
  struct Action {
    Stage stage;
    std::string name;
    std::function<void()> run;
  };
  std::vector<Action> actions_;
};

}  // namespace trainyard::core
