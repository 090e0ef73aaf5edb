// How an exchange between processes hears that it must end, and says how far it is. ProcessEngine is one.
#pragma once

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

// Any thread may call the functions.
class ExchangeWatch {
 public:
  virtual ~ExchangeWatch() = default;

  // Throws kPeerFailed after a failure.
  virtual void throw_if_failed() = 0;
  // Throws the error of a failure, of this process or of another one. Waiting threads call it every 50 ms.
  virtual void check() = 0;
  // Ends the exchange with this error, here and on the other processes.
  virtual void fail(const core::Error& error) = 0;

  // This process begins to wait for the others in a collective ("all-reduce"), and is done.
  virtual void begin_meeting(const char* operation) = 0;
  virtual void end_meeting() = 0;
  // Between these two calls, a process that does not call check() any more has stopped.
  virtual void begin_turns() = 0;
  virtual void end_turns() = 0;
};

// Calls begin_turns() and end_turns().
class ExchangeTurns {
 public:
  explicit ExchangeTurns(ExchangeWatch& watch) : watch_(watch) { watch_.begin_turns(); }
  ExchangeTurns(const ExchangeTurns&) = delete;
  ExchangeTurns& operator=(const ExchangeTurns&) = delete;
  ~ExchangeTurns() { watch_.end_turns(); }

 private:
  ExchangeWatch& watch_;
};

}  // namespace trainyard::parallel
