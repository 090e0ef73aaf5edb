// A device beside the CPU, as trainers and programs use it. It runs behind the thread that hands it work, may record a
// step and replay it, and has memory of its own. Layers reach the device through LibTorch, not through here.
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
#include "trainyard/nn/execution/accelerator_scope.h"
#include "trainyard/nn/execution/device_memory.h"
#include "trainyard/nn/execution/device_trace.h"

namespace trainyard::nn {

// Device work that was recorded and can be done again, on the same memory.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Hands all of it to the device; does not wait.
  virtual void replay() = 0;
};

// Work of one lane runs one piece behind the other; the two lanes run side by side.
enum class Lane {
  kCompute,  // what threads hand over while they use() the device
  kCopy,     // batches on their way to it
};

// A place in a lane that a lane waits for. One thread at a time.
class Mark {
 public:
  virtual ~Mark() = default;
  // Moves the mark behind all that was handed to the lane so far.
  virtual void set(Lane lane) = 0;
  // Makes all that is handed to the lane from now on wait on the device until all before the mark is done. The calling
  // thread does not wait. No effect before the first set().
  virtual void hold_back(Lane lane) = 0;
};

struct AcceleratorOptions {
  int index = 0;
  double memory_fraction = 0;  // of the device's memory that may be used, in (0, 1]; 0: all
  // Takes memory whose pages move between device and host. memory_fraction may then be up to 64, 0 means what is free
  // on the device, and nothing is recorded.
  bool managed_memory = false;
  bool take_all_memory = false;  // at once, instead of as it is needed
  bool tf32 = false;             // float products and convolutions may round their factors to 10 bits
  void validate() const;         // throws kInvalidArgument
};

// A device. All work that threads hand over while they use() it runs one piece behind the other. Any thread.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::Device device() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H200"

  // Makes the calling thread's work go here as long as the result lives.
  virtual AcceleratorScope use() = 0;
  // Blocks until all work that was handed over is done.
  virtual void wait() = 0;
  // Returns true when no work is left to be done.
  [[nodiscard]] virtual bool idle() { return true; }
  // Marks the end of a step and blocks until the step before the last one is done, so that the calling thread never
  // gets further ahead of the device.
  virtual void end_step() = 0;

  virtual std::unique_ptr<Mark> make_mark() = 0;
  // Returns memory of the host that the device reads by itself, not initialised. Any thread may call it, also one that
  // does not use() the device.
  [[nodiscard]] virtual at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) = 0;
  // Fills `target`, a tensor on the device, with `host` of the same shape and dtype, in the lane of copies. Does not
  // wait. pinned() memory that is let go of meanwhile is given out again only when it has been read. Other memory is
  // read before this returns.
  virtual void send(const at::Tensor& host, const at::Tensor& target) = 0;

  // Says that work here reads `tensor`, though its memory on the device was not taken under use(). When the tensor is
  // let go of, that memory is not given out again before the work that was handed over until then is done.
  virtual void will_read(const at::Tensor& tensor) = 0;

  // Runs `work`; what it hands to the device is not done but recorded. All that it reads and writes must lie in the
  // same place at each replay, and it must not wait for the device. Throws what `work` throws, and when something
  // cannot be recorded; then nothing has been done, and the device is usable.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;

  // Traces what the device runs from here on, once all before is done, as long as the result lives; only one at a time.
  // Null means that the device has done its work when a call returns, so that the caller's own times tell.
  virtual std::unique_ptr<DeviceTracer> trace() { return nullptr; }

  virtual DeviceMemory memory() = 0;
  // The last allocation that failed: how many bytes it asked for, and how many tensors had then. Zeros when none has
  // failed.
  struct Refused {
    int64_t asked = 0, used = 0;
  };
  virtual Refused refused() = 0;
};

// Makes the calling thread's work for each of them go there as long as the result lives. The first one is the current
// one.
AcceleratorScope use_all(std::span<const std::shared_ptr<Accelerator>> accelerators);

struct AcceleratorKind {
  std::function<int()> count{};  // of devices; 0 without a driver
  std::function<std::shared_ptr<Accelerator>(const AcceleratorOptions&)> open{};
};
using AcceleratorRegistry = core::Registry<AcceleratorKind>;
AcceleratorRegistry& accelerators();  // "cuda" where it is built in

// Returns how many devices of a kind there are, and 0 for a kind that is not built in.
[[nodiscard]] int accelerator_count(const std::string& kind);
// Opens a device. Throws kUnsupported when the kind is not built in or the machine has no such device, and
// kInvalidArgument for an index that it does not have.
std::shared_ptr<Accelerator> open_accelerator(const std::string& kind, const AcceleratorOptions& options);

}  // namespace trainyard::nn
