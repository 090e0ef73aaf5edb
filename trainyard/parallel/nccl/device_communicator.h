// Collectives of tensors on a device, which runs them behind the thread that calls: a call returns once its work is
// handed over, in the order of the calling thread's other work for the device, and what goes wrong later is thrown by a
// later call. Nothing waits for ever: work that is not done within the deadline of its call fails on all ranks.
#pragma once

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

class DeviceCommunicator : public core::Communicator {
 public:
  // By the rank's thread, each time after a recording that holds collectives of this rank was handed to the device.
  virtual void replayed() = 0;

  // Any thread. Throws what has gone wrong with this communicator or one that it shares abort() with; does not wait.
  virtual void check() = 0;
  // The same, once all that this rank has called is done. Not while its thread calls.
  virtual void wait() = 0;
};

}  // namespace trainyard::parallel
