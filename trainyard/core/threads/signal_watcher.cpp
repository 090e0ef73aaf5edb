#include "trainyard/core/threads/signal_watcher.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

sigset_t make_set(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    if (sigaddset(&set, signal) != 0) throw system_error(errno, "watch for a signal", signal_name(signal));
  }
  return set;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

SignalWatcher::Descriptor::Descriptor(int value, const char* what) : value_(value) {
  if (value_ == -1) throw system_error(errno, "watch for signals", what);
}

SignalWatcher::Descriptor::~Descriptor() {
  ::close(value_);
}

SignalWatcher::SignalWatcher(const std::vector<int>& signals, std::function<void(int)> on_first,
                             std::function<void(int)> on_next)
    : set_(make_set(signals)),
      signals_(::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"),
      end_(::eventfd(0, EFD_CLOEXEC), "eventfd"),
      mask_(set_),
      thread_({.name = "signals"},
              [this, first = std::move(on_first), next = std::move(on_next)] { watch(first, next); }) {}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from its limit. The thread is joined by its destructor.
  [[maybe_unused]] const ssize_t written = ::write(end_.get(), &one, sizeof one);
  try {
    thread_.join();
  } catch (const Error&) {
    // An action threw, which ended the watcher: the process is about to end anyway.
  }
}

void SignalWatcher::watch(const std::function<void(int)>& on_first, const std::function<void(int)>& on_next) const {
  bool first = true;
  for (;;) {
    std::array<pollfd, 2> sources{pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = end_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(sources.data(), sources.size(), -1) == -1) {
      if (errno == EINTR) continue;
      throw system_error(errno, "wait for signals", "poll");
    }
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      (first ? on_first : on_next)(static_cast<int>(info.ssi_signo));
      first = false;
    }
    if (sources[1].revents != 0) return;
  }
}

}  // namespace trainyard::core
