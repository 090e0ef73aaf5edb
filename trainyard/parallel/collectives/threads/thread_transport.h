// Messages between threads of one process: a receiver copies straight from the sender's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/message_transport.h"

namespace trainyard::parallel {

// Where the messages of one collective between `size` threads meet. Any thread may use it.
class ThreadMessages {
 public:
  explicit ThreadMessages(int size);
  ~ThreadMessages();

  // Returns the transport of a thread, which must not outlive this object.
  std::unique_ptr<MessageTransport> transport(int thread);

  // Returns a number that grows with each message and with fail().
  uint64_t changes() const;
  // Blocks until changes() is no longer `seen`, or until the time is up; returns false then.
  bool wait_for_change(uint64_t seen, std::chrono::steady_clock::time_point until);

  // Ends the exchange on all threads. The first error is kept.
  void fail(const core::Error& error);
  std::optional<core::Error> failure() const;

  struct State;

 private:
  const int size_;
  const std::unique_ptr<State> state_;
};

}  // namespace trainyard::parallel
