// The interface to NCCL, NVIDIA's collectives between GPUs, and to the GPUs' streams. It is implemented by the library
// itself when it is built in (cuda/nccl_library.cpp), and by fakes in tests. How ranks meet, wait, fail and end is
// decided above it (nccl_communicator.h).
//
// Nothing here waits for another rank: calls that need the peers return kInProgress, and state() tells when they are
// done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::parallel {

struct NcclAnswer {
  enum class State { kDone, kInProgress, kFailed };
  State state = State::kDone;
  std::string error;  // NCCL's message when it failed
};

// A point in the order of a stream's work: a CUDA event.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  // Returns true when all work before it is done. Any thread. Throws kInternal when the device has failed.
  virtual bool reached() = 0;
};

// One rank of one communicator. Calls of one object exclude each other, except for abort(), whose caller sees to it
// that no other call begins. Collectives go to the calling thread's current stream of the rank's device, one at a time:
// the next one once state() is kDone.
class NcclRank {
 public:
  // Destroy it after finish() is kDone, or after abort(): NCCL's communicator is gone then.
  virtual ~NcclRank() = default;

  // Reduces `count` elements in place: float, double, half, bfloat16, int64 or int32; no mean of integers.
  virtual NcclAnswer all_reduce(void* data, int64_t count, at::ScalarType type, core::ReduceOp op) = 0;
  virtual NcclAnswer broadcast(void* data, int64_t bytes, int root) = 0;
  // Gathers into `all`, size x `bytes`, in rank order.
  virtual NcclAnswer all_gather(const void* own, void* all, int64_t bytes) = 0;

  // Returns the state of the last call, joining included, or an error that has occurred since on this rank or a peer.
  virtual NcclAnswer state() = 0;
  // Begins to end the rank, as its last call. All ranks of a process begin before one waits for state().
  virtual NcclAnswer finish() = 0;
  // Ends the rank, and its work on the device that waits for peers. May block until recordings with its collectives are
  // destroyed.
  virtual void abort() = 0;

  // Returns true when work on the calling thread's current stream of the rank's device is recorded and not done.
  virtual bool recording() = 0;
  // Returns a mark after the work of that stream so far.
  virtual std::unique_ptr<DeviceMark> mark() = 0;
};

// The library. Any thread.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  virtual std::string version() = 0;  // "2.28.9"
  // Returns a unique id with which the ranks of one communicator join. One of them makes it.
  virtual std::string unique_id() = 0;
  // Begins to join as ranks first_rank, ... of `size`, one per device; the others join elsewhere. Throws kInternal.
  virtual std::vector<std::unique_ptr<NcclRank>> join(const std::string& id, int size, int first_rank,
                                                      std::span<const at::Device> devices) = 0;
  // Returns a text that identifies a device of this machine, also when processes number them differently.
  virtual std::string identity(at::Device device) = 0;
};

using NcclLibraryRegistry = core::Registry<std::function<std::shared_ptr<NcclLibrary>()>>;
NcclLibraryRegistry& nccl_libraries();  // "nccl" where it is built in
// Loads the library. Throws kUnsupported, with what to install, when it is not built in or cannot be loaded.
std::shared_ptr<NcclLibrary> open_nccl();

}  // namespace trainyard::parallel
