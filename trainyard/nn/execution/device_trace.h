// Records what an accelerator has run, and when: its kernels, copies and fills, and for which part of the program.
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

// One piece of work on the device. Times are of the host's clock.
struct DeviceActivity {
  enum class Kind { kKernel, kCopy, kFill, kSpan };  // kSpan: all work of a span, when no more is known

  Kind kind = Kind::kKernel;
  std::string name{};  // "batch_norm_forward<half>", "copy pinned to device"
  int64_t device = 0;  // its index
  int64_t stream = 0;
  TraceClock::time_point begin{}, end{};
  uint64_t span = 0;                                    // span that enqueued it; 0: none
  std::optional<TraceClock::time_point> handed_over{};  // when the host enqueued it, if known
  std::array<int64_t, 3> grid{}, block{};               // of kernels
  int64_t registers = 0, shared_bytes = 0;              // of kernels: a thread's, a block's
  int64_t bytes = 0;                                    // of copies and fills
};

struct DeviceRecords {
  std::vector<DeviceActivity> activities{};  // in the order of their begins
  int64_t lost = 0;                          // number of further activities, for which there was no room
};

// Traces from its construction to its destruction. Any thread may call its methods.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  // Returns the method of measuring, for reports: "CUPTI".
  [[nodiscard]] virtual std::string method() const = 0;
  // Begins a span: work that the calling thread enqueues until it calls end_span() belongs to it, or to the innermost
  // of nested spans. Returns the span's number, which is positive and unique in this process.
  virtual uint64_t begin_span() = 0;
  virtual void end_span() noexcept = 0;
  // Blocks until the device is done. Returns its work since the last call, and the number of lost records.
  virtual DeviceRecords collect() = 0;
};

// For tracers: returns a number that no other span has.
uint64_t next_span();

// For tracers whose driver reports activities and the calls that enqueued them separately, in any order: joins the two.
// Keeps at most `limit` records of all kinds, and counts further activities as lost.
class ActivityJoin {
 public:
  explicit ActivityJoin(size_t limit) : limit_(limit) {}

  // Adds a call: the driver's number, its time, and its span.
  void add_call(uint64_t call, TraceClock::time_point time);
  void add_span(uint64_t call, uint64_t span);
  // Adds an activity without its span and handed_over. One that ends before it begins is lost.
  void add(DeviceActivity activity, uint64_t call);
  void lose(int64_t activities) { lost_ += activities; }

  // Returns all records, and removes them.
  [[nodiscard]] DeviceRecords take();

 private:
  bool full() const { return calls_.size() + spans_.size() + activities_.size() >= limit_; }

  size_t limit_;
  std::vector<std::pair<uint64_t, TraceClock::time_point>> calls_;
  std::vector<std::pair<uint64_t, uint64_t>> spans_;
  std::vector<std::pair<uint64_t, DeviceActivity>> activities_;
  int64_t lost_ = 0;
};

// For tracers that only know when the device passed marks in one stream: sets a mark when a span begins or ends, and
// turns the times between marks into activities of the innermost span. Not thread-safe.
class SpanMarks {
 public:
  // Keeps at most `limit` marks, at least one. The last one ends all spans: further work is lost.
  explicit SpanMarks(size_t limit) : limit_(limit) {}

  // Begins a span of the calling thread and returns its number. Adds a mark after the enqueued work, if there is room.
  uint64_t begin();
  // Ends the span, and adds a mark likewise.
  void end();
  size_t size() const { return marks_.size(); }

  // Returns the activities. `passed` has the time when the device passed each mark and, as its last element, the end of
  // all work. Work outside of spans is left out. Removes the marks, but keeps open spans.
  [[nodiscard]] DeviceRecords take(const std::vector<TraceClock::time_point>& passed, int64_t device, int64_t stream);

 private:
  struct Mark {
    uint64_t span{};  // span from this mark on; 0: none
    TraceClock::time_point handed_over{};
  };
  void mark(const std::vector<uint64_t>& open);

  size_t limit_;
  int64_t lost_ = 0;
  std::unordered_map<std::thread::id, std::vector<uint64_t>> open_;
  std::vector<Mark> marks_;
};

// Returns a readable form of a kernel's symbol: demangled, without return type, parameters and namespaces, truncated to
// 96 bytes: "vectorized_elementwise_kernel<4, CUDAFunctor_add<Half>, array<char*, 3ul> >". Any other text is only
// truncated.
[[nodiscard]] std::string kernel_name(std::string_view symbol);

}  // namespace trainyard::nn
