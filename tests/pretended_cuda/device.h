// The device that the pretended CUDA runtime pretends: memory of a limited size, streams that do their work as late as
// they may, captures that break as CUDA's do. One of it, for the process; every member is called with lock() held.
//
// Work is done only when somebody waits for it: when a stream, an event or the device is synchronized. A missing wait
// therefore shows as old bytes, each time, and not as a race.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <cuda_runtime_api.h>

namespace trainyard::pretended_cuda {

struct Stream;

// A place in a stream: all that was handed over before it.
struct Place {
  std::shared_ptr<Stream> stream;
  int64_t position = 0;
};

struct Operation {
  std::function<void()> run;      // may be none
  Place wait_for;                 // first; none: stream is null
  struct Event* event = nullptr;  // whose time this is
};

struct Graph {
  std::vector<Operation> operations;  // in an order that they may be done in
  int64_t launches = 0;
};

struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  Stream* origin = nullptr;
  std::thread::id thread;        // that began it
  std::vector<Stream*> streams;  // the origin and those that have joined
  std::set<Stream*> unjoined;    // of these, those whose work the origin does not wait for
  bool broken = false;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

struct Stream : std::enable_shared_from_this<Stream> {
  uint32_t number = 0;
  bool legacy = false, blocking = true;
  std::deque<Operation> waiting;
  int64_t handed = 0, done = 0;
  std::shared_ptr<Capture> capture;
};

struct Event {
  bool timing = true;
  Place recorded;                     // stream null: never
  std::shared_ptr<Capture> captured;  // where it was last recorded, if that was a capture
  Stream* captured_stream = nullptr;
  int64_t time = -1;  // when it was passed
};

class Device {
 public:
  static Device& instance();
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

  // Counts a call of the interface, and anything else by name.
  void count(const std::string& name) { ++counts_[name]; }
  std::map<std::string, int64_t>& counts() { return counts_; }

  // Sets the thread's last error, and gives it back.
  static cudaError_t result(cudaError_t error);
  static cudaError_t& last_error();
  // A mistake that CUDA lets pass or crashes at: counted as "mistake", said on stderr.
  void mistake(const std::string& what);

  // --- memory (memory.cpp) ---
  int64_t total() const { return total_; }
  int64_t free_bytes() const { return total_ - used_; }
  // `managed`: not of the budget.
  cudaError_t allocate(void** pointer, size_t bytes, bool managed);
  cudaError_t release(void* pointer);
  bool on_device(const void* pointer, size_t bytes) const { return within(blocks_, pointer, bytes); }
  bool pinned(const void* pointer, size_t bytes) const { return within(pinned_, pointer, bytes); }
  std::map<const char*, size_t>& pinned_blocks() { return pinned_; }

  // --- traces (launches.cpp) ---
  void watch_by(Watch watch) { watch_ = watch; }
  // `operation` with the watch told; nobody watches captured work.
  Operation watched(const Stream& stream, Operation operation, Work work) const;

  // --- order (streams.cpp) ---
  std::shared_ptr<Stream> stream(cudaStream_t handle);  // null: there is no such stream
  cudaStream_t add_stream(bool blocking);
  cudaError_t remove_stream(cudaStream_t handle);
  // Behind all that the stream has; into the graph, where it is captured.
  cudaError_t hand_over(Stream& stream, Operation operation);
  void finish(Stream& stream) { advance(stream, stream.handed); }
  void advance(Stream& stream, int64_t position);
  void finish_all();
  Event* event(cudaEvent_t handle);  // null: there is no such event
  cudaEvent_t add_event(bool timing);
  cudaError_t remove_event(cudaEvent_t handle);
  bool passed(const Event& event) const;

  // --- captures (captures.cpp) ---
  std::vector<std::shared_ptr<Capture>>& captures() { return captures_; }
  std::map<cudaGraph_t, std::unique_ptr<Graph>>& graphs() { return graphs_; }
  // A call that may not be in a capture, as the calling thread's mode has it: breaks what it disturbs.
  cudaError_t unsafe_call();
  // A call that waits for `stream`, or for all where it is null.
  cudaError_t waiting_call(const Stream* stream);
  static cudaStreamCaptureMode& thread_mode();

 private:
  Device();
  static bool within(const std::map<const char*, size_t>& blocks, const void* pointer, size_t bytes);

  std::recursive_mutex mutex_;
  std::map<std::string, int64_t> counts_;
  int64_t total_ = 0, used_ = 0;
  std::map<const char*, size_t> blocks_, pinned_;  // first byte, bytes
  std::set<const char*> managed_;                  // of blocks_
  std::shared_ptr<Stream> legacy_;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams_;
  std::map<cudaEvent_t, std::unique_ptr<Event>> events_;
  int64_t clock_ = 0;
  Watch watch_ = nullptr;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::map<cudaGraph_t, std::unique_ptr<Graph>> graphs_;
};

// Reads a size in MiB, or a number, from the environment.
int64_t setting(const char* name, int64_t otherwise);

}  // namespace trainyard::pretended_cuda
