#include <chrono>
#include <mutex>
#include <vector>

#include <c10/cuda/CUDAEvent.h>
#include <c10/util/Exception.h>

#include "trainyard/nn/cuda/tracers.h"

namespace trainyard::nn::cuda {
namespace {

class EventTracer : public DeviceTracer {
 public:
  explicit EventTracer(const c10::cuda::CUDAStream& stream) : stream_(stream) { restart(); }

  std::string method() const override { return "events on its stream, pauses within a layer included"; }

  uint64_t begin_span() override {
    if (elsewhere()) return next_span();
    const std::lock_guard lock(mutex_);
    const uint64_t span = marks_.begin();
    record();
    return span;
  }

  void end_span() noexcept override {
    if (elsewhere()) return;
    const std::lock_guard lock(mutex_);
    marks_.end();
    try {
      record();
    } catch (const c10::Error&) {
      // The marks have one more than there are events: collect() says that it failed.
    }
  }

  DeviceRecords collect() override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(recorded_ == marks_.size(), "events of a traced step could not be recorded");
    event(recorded_).record(stream_);
    event(recorded_).synchronize();
    std::vector<TraceClock::time_point> passed;
    for (size_t i = 0; i <= recorded_; ++i) {
      const std::chrono::duration<float, std::milli> since(start_.elapsed_time(event(i)));
      passed.push_back(start_time_ + std::chrono::duration_cast<TraceClock::duration>(since));
    }
    DeviceRecords records = marks_.take(passed, stream_.device_index(), stream_.id());
    restart();
    return records;
  }

 private:
  static constexpr size_t kMarks = size_t{1} << 17;  // a step of a large model makes some thousands

  c10::cuda::CUDAEvent& event(size_t index) {
    while (events_.size() <= index) events_.emplace_back(cudaEventDefault);
    return events_[index];
  }

  // Whether the calling thread hands over to another stream, as replicas on other GPUs do.
  bool elsewhere() const { return c10::cuda::getCurrentCUDAStream() != stream_; }

  void record() {
    if (recorded_ + 1 != marks_.size()) return;  // no room, or one has failed
    event(recorded_).record(stream_);
    ++recorded_;
  }

  // The host's time of an event is the first one after which it is seen to have passed: microseconds late.
  void restart() {
    recorded_ = 0;
    start_.record(stream_);
    start_.synchronize();
    start_time_ = TraceClock::now();
  }

  std::mutex mutex_;
  c10::cuda::CUDAStream stream_;
  SpanMarks marks_{kMarks};
  std::vector<c10::cuda::CUDAEvent> events_;  // of the marks, and of the end; reused
  size_t recorded_ = 0;
  c10::cuda::CUDAEvent start_{cudaEventDefault};
  TraceClock::time_point start_time_;
};

}  // namespace

std::unique_ptr<DeviceTracer> open_event_tracer(const c10::cuda::CUDAStream& stream) {
  return std::make_unique<EventTracer>(stream);
}

}  // namespace trainyard::nn::cuda
