// Collectives of tensors on a device, which runs them behind the thread that calls. A call returns once its work is
// handed over, in the order of the calling thread's other work for the device; what goes wrong later is thrown by a
// later call. Nothing waits for ever: work that is not done within the deadline of its call fails on all ranks.
#pragma once

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

class DeviceCommunicator : public core::Communicator {
 public:
  // Called by the rank's thread, each time that a recording which holds collectives of this rank was handed to the
  // device.
  virtual void replayed() = 0;

  // Throws what has gone wrong with this communicator, or with one that it shares abort() with. Does not wait. Any
  // thread.
  virtual void check() = 0;
  // Blocks until all that this rank has called is done, then does the same. Not while its thread calls.
  virtual void wait() = 0;
};

}  // namespace trainyard::parallel
