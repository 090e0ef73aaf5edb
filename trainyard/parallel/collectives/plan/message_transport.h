// Carries messages between the processes of a training: MPI (mpi_transport.h), or memory in tests. It never blocks.
// Used only by the thread that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trainyard::parallel {

// A pending message. It uses its memory until done() has returned true. Destroying it earlier does not cancel the
// transfer, so its memory must then live as long as the transport.
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

  // Messages of one tag between two processes arrive in the order in which they were sent. A receiver names the number
  // of bytes that come, or more. Tags: 0 to 2^31 - 1.
  virtual std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) = 0;

  // The following two block until all processes have called them; they are the library's own collectives, for
  // comparison (ProcessEngine::run_on_transport). Both throw kUnsupported where the transport has none.
  virtual void barrier();
  // Turns each value into the sum over all processes, with MPI_Allreduce. 2^30 elements at most.
  virtual void all_reduce_sum(float* values, int64_t elements);

  // Blocks until all processes have called it. No message may be pending, and none may be sent after it.
  virtual void finish() = 0;

  int process() const { return process_; }
  int processes() const { return processes_; }

 protected:
  int process_ = 0, processes_ = 1;  // set by the implementation when it is made
};

}  // namespace trainyard::parallel
