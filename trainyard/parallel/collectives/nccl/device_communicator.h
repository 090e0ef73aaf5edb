// Collectives on device tensors, which the device runs asynchronously. A call returns once its work is enqueued, in
// order with the calling thread's other work for the device; a later call throws errors that occur later. Nothing waits
// forever: work that is not done within the deadline of its call fails on all ranks.
#pragma once

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

class DeviceCommunicator : public core::Communicator {
 public:
  // The rank's thread calls it each time that it has launched a recording with collectives of this rank on the device.
  virtual void replayed() = 0;

  // Throws the error of this communicator, or of one that it shares abort() with. Does not wait. Any thread.
  virtual void check() = 0;
  // Blocks until all collectives that this rank has called are done, then does the same as check(). Must not be called
  // while its thread calls a collective.
  virtual void wait() = 0;
};

}  // namespace trainyard::parallel
