// Handles signals on a thread: the first one asks for a stop, the second one ends the process, and nothing runs inside
// a signal handler.
//
//   core::StopSource stop;
//   core::SignalWatcher watcher({SIGTERM, SIGINT},
//                               [&](int signal) { stop.request_stop(StopReason::kSignal, signal_name(signal)); },
//                               [](int signal) { std::_Exit(128 + signal); });  // only apps may end the process
//
// Make it before any other thread: threads inherit the mask that keeps these signals from them. Programs started with
// exec inherit it, too; whoever starts some must unblock the signals in the child.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <pthread.h>
#include <signal.h>

#include "trainyard/core/threads/thread.h"

namespace trainyard::core {

// The exit code of a run that a signal stopped cleanly, with its checkpoint saved: the same command continues it. It is
// EX_TEMPFAIL of sysexits.h, which batch systems take for "try again". A second signal ends with 128 + its number.
inline constexpr int kExitStoppedBySignal = 75;

// Returns "SIGTERM", or "signal 99" for a signal without a name.
[[nodiscard]] std::string signal_name(int signal);

class SignalWatcher {
 public:
  // Blocks `signals` in this thread. Calls `on_first`, on the watcher's thread, for the first of them that arrives, and
  // `on_next` for each later one. Throws kIo when the system refuses.
  SignalWatcher(const std::vector<int>& signals, std::function<void(int signal)> on_first,
                std::function<void(int signal)> on_next);
  // Ends the thread and restores the mask of this thread. Must be called on the thread that made it.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  // Closes on destruction, also when the constructor throws.
  class Descriptor {
   public:
    Descriptor(int value, const char* what);
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return value_; }

   private:
    int value_;
  };

  // Blocks the signals in this thread, and in those that it starts, as long as it lives.
  class Mask {
   public:
    explicit Mask(const sigset_t& blocked) { pthread_sigmask(SIG_BLOCK, &blocked, &before_); }
    ~Mask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    Mask(const Mask&) = delete;
    Mask& operator=(const Mask&) = delete;

   private:
    sigset_t before_{};
  };

  void watch(const std::function<void(int)>& on_first, const std::function<void(int)>& on_next) const;

  const sigset_t set_;
  Descriptor signals_;
  Descriptor end_;   // written to when the thread is to end
  const Mask mask_;  // before the thread, which inherits it
  Thread thread_;
};

}  // namespace trainyard::core
