// What carries messages between the processes of a training: MPI (mpi_transport.h), or a test's memory. It never waits.
// One thread uses it, the one that made it.
#pragma once

#include <cstddef>
#include <memory>

namespace trainyard::parallel {

// A message on its way. Its memory belongs to it until done() has returned true; one that is destroyed before is
// forgotten, not recalled, so that its memory must live as long as the transport.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Returns true once the message has been received, or once its memory is free to be written again. Throws kPeerFailed
  // when the connection is broken.
  virtual bool done() = 0;
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual int process() const = 0;
  virtual int processes() const = 0;

  // Messages of one tag between two processes arrive in the order in which they were sent. A receiver names the number
  // of bytes that come, or more. Tags: 0 to 2^31 - 1.
  virtual std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) = 0;

  // Blocks until all processes have called it. Nothing may be on its way, and nothing be sent after it.
  virtual void finish() = 0;
};

}  // namespace trainyard::parallel
