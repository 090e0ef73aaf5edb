// What a device beside the CPU has run, and when: its kernels, copies and fills, and for which part of the program.
//
//   const auto tracer = accelerator->trace();
//   const uint64_t span = tracer->begin_span();
//   ... hand work over ...
//   tracer->end_span();
//   for (const DeviceActivity& activity : tracer->collect().activities) if (activity.span == span) ...
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn {

using TraceClock = NodeRun::Clock;

// One piece of work as the device ran it. Times are those of the host's clock.
struct DeviceActivity {
  enum class Kind { kKernel, kCopy, kFill, kSpan };  // kSpan: all that a span has run, where no more is known

  Kind kind = Kind::kKernel;
  std::string name{};  // "batch_norm_forward<half>", "copy pinned to device"
  int64_t device = 0;  // its index
  int64_t stream = 0;
  TraceClock::time_point begin{}, end{};
  uint64_t span = 0;                                    // that handed it over; 0: none
  std::optional<TraceClock::time_point> handed_over{};  // when the host did so, where that is known
  std::array<int64_t, 3> grid{}, block{};               // of kernels
  int64_t registers = 0, shared_bytes = 0;              // of kernels: a thread's, a block's
  int64_t bytes = 0;                                    // of copies and fills
};

struct DeviceRecords {
  std::vector<DeviceActivity> activities{};  // in the order of their begins
  int64_t lost = 0;                          // how many more there were, for which there was no room
};

// Traces from when it is made until it ends. Any thread may call its methods.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  // Returns how times are taken, for people: "CUPTI".
  [[nodiscard]] virtual std::string method() const = 0;
  // Begins a span: what the calling thread hands over until it calls end_span() belongs to it, or to the innermost of
  // spans inside each other. Returns the span's number, which is positive and no other's in this process.
  virtual uint64_t begin_span() = 0;
  virtual void end_span() noexcept = 0;
  // Blocks until the device is done. Returns what it has run since the last call, and how much of that is lost.
  virtual DeviceRecords collect() = 0;
};

// For tracers: returns a number that no other span has.
uint64_t next_span();

// For tracers whose driver tells, in any order, what ran apart from the calls that handed it over: puts the two
// together. Keeps at most `limit` records of all sorts, and counts the activities that it has no room for as lost.
class ActivityJoin {
 public:
  explicit ActivityJoin(size_t limit) : limit_(limit) {}

  // Takes the driver's number of a call, when it was made, and the span that made it.
  void add_call(uint64_t call, TraceClock::time_point time);
  void add_span(uint64_t call, uint64_t span);
  // Takes an activity without its span and hand_over. One that ends before it begins is lost.
  void add(DeviceActivity activity, uint64_t call);
  void lose(int64_t activities) { lost_ += activities; }

  // Returns all of it, and forgets it.
  [[nodiscard]] DeviceRecords take();

 private:
  bool full() const { return calls_.size() + spans_.size() + activities_.size() >= limit_; }

  size_t limit_;
  std::vector<std::pair<uint64_t, TraceClock::time_point>> calls_;
  std::vector<std::pair<uint64_t, uint64_t>> spans_;
  std::vector<std::pair<uint64_t, DeviceActivity>> activities_;
  int64_t lost_ = 0;
};

// For tracers that only know when the device passed marks in one stream: puts a mark where a span begins or ends on
// some thread, and makes of the times between marks activities of the innermost span. Not for several threads at once.
class SpanMarks {
 public:
  // Keeps at most `limit` marks, at least one. The last one ends all spans: what follows is lost.
  explicit SpanMarks(size_t limit) : limit_(limit) {}

  // Begins a span of the calling thread and returns its number. Adds a mark behind what was handed over, if there is
  // room.
  uint64_t begin();
  // Ends it, and adds a mark likewise.
  void end();
  size_t size() const { return marks_.size(); }

  // Returns the activities. `passed` says when the device was at each mark and, as its last element, at the end of all.
  // Work in no span is left out. Forgets the marks, but not which spans are open.
  [[nodiscard]] DeviceRecords take(const std::vector<TraceClock::time_point>& passed, int64_t device, int64_t stream);

 private:
  struct Mark {
    uint64_t span{};  // from here on; 0: none
    TraceClock::time_point handed_over{};
  };
  void mark(const std::vector<uint64_t>& open);

  size_t limit_;
  int64_t lost_ = 0;
  std::unordered_map<std::thread::id, std::vector<uint64_t>> open_;
  std::vector<Mark> marks_;
};

// Returns a kernel's symbol as people read it: demangled, without return type, parameters and namespaces, cut after 96
// bytes: "vectorized_elementwise_kernel<4, CUDAFunctor_add<Half>, array<char*, 3ul> >". A text that is no C++ symbol is
// only cut.
[[nodiscard]] std::string kernel_name(std::string_view symbol);

}  // namespace trainyard::nn
