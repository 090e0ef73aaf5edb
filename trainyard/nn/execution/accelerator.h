// The interface to an accelerator for trainers and programs. The device runs asynchronously to the thread that enqueues
// work, can record a step and replay it, and has memory of its own. Layers use the device through LibTorch, not through
// this interface.
//
//   auto gpu = open_accelerator("cuda", {.index = 0});
//   const auto using_it = gpu->use();            // this thread's work goes to gpu's stream
//   auto step = gpu->record([&] { train_one_step(); });
//   step->replay();
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "trainyard/core/base/registry.h"
#include "trainyard/nn/execution/device_memory.h"
#include "trainyard/nn/execution/device_trace.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn {

// Device work that was recorded and can be replayed on the same memory.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Enqueues the recorded work on the device. Does not wait.
  virtual void replay() = 0;
};

// A lane is a stream of the device: work of one lane runs in order; the two lanes run concurrently.
enum class Lane {
  kCompute,  // work that threads enqueue while they use() the device
  kCopy,     // copies of batches to the device
};

// A point in a lane that another lane can wait for (a CUDA event). For one thread at a time.
class Mark {
 public:
  virtual ~Mark() = default;
  // Sets the mark after all work that was enqueued in the lane so far.
  virtual void set(Lane lane) = 0;
  // Makes work that is enqueued in the lane from now on wait, on the device, until all work before the mark is done.
  // The calling thread does not wait. No effect before the first set().
  virtual void hold_back(Lane lane) = 0;
};

struct AcceleratorOptions {
  int index = 0;
  double memory_fraction = 0;  // fraction of the device's memory that may be used, in (0, 1]; 0: all
  // Allocates memory whose pages migrate between device and host. memory_fraction may then be up to 64, 0 means the
  // free memory of the device, and steps cannot be recorded.
  bool managed_memory = false;
  bool take_all_memory = false;  // allocates all memory at once instead of on demand
  bool tf32 = false;             // float products and convolutions may round their factors to 10 bits
  void validate() const;         // throws kInvalidArgument
};

// An accelerator. All work that threads enqueue while they use() it runs in order. Any thread may call it.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::Device device() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H200"

  // Directs the calling thread's work to this device as long as the result lives.
  virtual AcceleratorScope use() = 0;
  // Blocks until all enqueued work is done.
  virtual void wait() = 0;
  // Returns true when no work is left.
  [[nodiscard]] virtual bool idle() { return true; }
  // Marks the end of a step, and blocks until the step before the last one is done, so that the calling thread is never
  // further ahead of the device.
  virtual void end_step() = 0;

  virtual std::unique_ptr<Mark> make_mark() = 0;
  // Returns pinned host memory, not initialised. Any thread may call it, also one that does not use() the device.
  [[nodiscard]] virtual at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) = 0;
  // Copies `host` to `target`, a tensor of the same shape and dtype on the device, in the copy lane. Does not wait for
  // pinned() memory, which is reused only after it has been read, even when it is freed earlier. Other memory is read
  // before this returns.
  virtual void send(const at::Tensor& host, const at::Tensor& target) = 0;

  // Says that work on this device reads `tensor`, although its memory was not allocated under use(). When the tensor is
  // freed, its memory is not reused before the work that was enqueued until then is done.
  virtual void will_read(const at::Tensor& tensor) = 0;

  // Runs `work` and records what it enqueues, without executing it. Everything that it reads and writes must be at the
  // same address in each replay, and it must not wait for the device. Throws what `work` throws, and when something
  // cannot be recorded; nothing has been executed then, and the device is usable.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;

  // Waits for all enqueued work, then traces what the device runs as long as the result lives; only one tracer at a
  // time. Returns null when the device runs synchronously, so that the caller's own times are enough.
  virtual std::unique_ptr<DeviceTracer> trace() { return nullptr; }

  virtual DeviceMemory memory() = 0;
  // The last allocation that failed: the bytes requested, and the bytes in tensors then. Zeros when none has failed.
  struct Refused {
    int64_t asked = 0, used = 0;
  };
  virtual Refused refused() = 0;
};

// Directs the calling thread's work for each accelerator to it as long as the result lives. The first one is current.
AcceleratorScope use_all(std::span<const std::shared_ptr<Accelerator>> accelerators);

struct AcceleratorKind {
  std::function<int()> count{};  // of devices; 0 without a driver
  std::function<std::shared_ptr<Accelerator>(const AcceleratorOptions&)> open{};
};
using AcceleratorRegistry = core::Registry<AcceleratorKind>;
AcceleratorRegistry& accelerators();  // "cuda" where it is built in

// Returns the number of devices of a kind, and 0 for a kind that is not built in.
[[nodiscard]] int accelerator_count(const std::string& kind);
// Opens a device. Throws kUnsupported when the kind is not built in or the machine has no such device, and
// kInvalidArgument for an index that it does not have.
std::shared_ptr<Accelerator> open_accelerator(const std::string& kind, const AcceleratorOptions& options);

}  // namespace trainyard::nn
