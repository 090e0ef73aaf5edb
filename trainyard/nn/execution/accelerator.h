// A device beside the CPU as trainers and programs use it: it runs behind the thread that hands it work, may record a
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

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "trainyard/core/base/registry.h"
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

// Work of one lane runs one behind the other, the two lanes run side by side.
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
  // What is handed to the lane from now on begins when all before the mark is done; the calling thread does not wait.
  // No effect before the first set().
  virtual void hold_back(Lane lane) = 0;
};

struct AcceleratorOptions {
  int index = 0;
  double memory_fraction = 0;  // of the device's memory that may be used, in (0, 1]; 0: all
  // Memory whose pages move between device and host: memory_fraction may be up to 64 then, 0 is what is free on the
  // device, and nothing is recorded.
  bool managed_memory = false;
  bool take_all_memory = false;  // at once, instead of as it is needed
  bool tf32 = false;             // float products and convolutions may round their factors to 10 bits
  void validate() const;         // throws kInvalidArgument
};

// All work that threads hand over while they use() it runs one behind the other. Any thread.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::Device device() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H200"

  // The calling thread's work goes here as long as the result lives; let go of on the same thread.
  virtual std::shared_ptr<void> use() = 0;
  // Waits until all is done; whether it is.
  virtual void wait() = 0;
  virtual bool idle() { return true; }
  // Where a step ends: waits until the one before the last is done, so that the calling thread is never further ahead.
  virtual void end_step() = 0;

  virtual std::unique_ptr<Mark> make_mark() = 0;
  // Uninitialised memory of the host that the device reads by itself. From any thread, which need not use() the device.
  virtual at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) = 0;
  // Fills `target`, a tensor on the device, with `host` of the same shape and dtype, in the lane of copies. Does not
  // wait: pinned() memory, once let go of, is given out again when it has been read; other memory is read before this
  // returns.
  virtual void send(const at::Tensor& host, const at::Tensor& target) = 0;

  // `tensor` lies on the device, in memory that nobody took while they used it: once let go of, that is not given out
  // again before the work that was handed over until then is done.
  virtual void will_read(const at::Tensor& tensor) = 0;

  // Runs `work`, whose work for the device is not done but recorded. Everything that it reads and writes must lie where
  // it is at each replay; it must not wait for the device. Throws what `work` throws, or when something cannot be
  // recorded; nothing has been done then, and the device is usable.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;

  // What the device runs from here on, once all before is done, as long as the result lives: one at a time. Null: it is
  // done with what it is handed when the call returns, and the caller's times are its own.
  virtual std::unique_ptr<DeviceTracer> trace() { return nullptr; }

  virtual DeviceMemory memory() = 0;
  // The last allocation that failed: bytes that it asked for, and that tensors had then. Zeros: none has.
  struct Refused {
    int64_t asked = 0, used = 0;
  };
  virtual Refused refused() = 0;
};

// The calling thread's work for each of them goes there as long as the result lives; the first is the current one. Null
// for none.
std::shared_ptr<void> use_all(std::span<const std::shared_ptr<Accelerator>> accelerators);

struct AcceleratorKind {
  std::function<int()> count;  // of devices; 0 without a driver
  std::function<std::shared_ptr<Accelerator>(const AcceleratorOptions&)> open;
};
using AcceleratorRegistry = core::Registry<AcceleratorKind>;
AcceleratorRegistry& accelerators();  // "cuda" where it is built in

// 0 for a kind that is not built in.
int accelerator_count(const std::string& kind);
// Throws kUnsupported when the kind is not built in or the machine has no such device, kInvalidArgument for an index
// that it does not have.
std::shared_ptr<Accelerator> open_accelerator(const std::string& kind, const AcceleratorOptions& options);

}  // namespace trainyard::nn
