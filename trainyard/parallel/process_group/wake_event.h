// Wakes a thread that waits in poll().
#pragma once

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "trainyard/core/sockets/socket.h"

namespace trainyard::parallel {

class WakeEvent {
 public:
  int descriptor() const { return event_.descriptor(); }
  // Wakes the thread. Any thread may call it.
  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(descriptor(), &one, sizeof(one));
  }
  void reset() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(descriptor(), &count, sizeof(count));
  }

 private:
  core::Socket event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

}  // namespace trainyard::parallel
