// Records what steps do, with times: for traces, profiles and the table of layers. A trainer writes into a recorder
// only while it is told to record; otherwise recording costs nothing.
//
//   StepRecorder recorder(replicas);  // of an accelerator also its tracer
//   trainer.record(&recorder);        // between steps
//   ... steps, each with recorder.collect() behind it ...
//   trainer.record(nullptr);
//   for (const StepRecord& step : recorder.steps()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/nn/execution/device_trace.h"
#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::train {

// Parts of a step. Nodes are timed inside kForward and kBackward.
enum class StepPart { kStep, kInput, kForward, kLoss, kBackward, kReduce, kUpdate };
std::string_view part_name(StepPart part);  // "step", "input", ...

using RecordClock = nn::NodeRun::Clock;

// One part of a step. On an accelerator begin and end are those of enqueueing the work; the executed work of the span
// is in the step's DeviceRecord.
struct PartRecord {
  StepPart part{};
  RecordClock::time_point begin{}, end{};
  uint64_t span = 0;  // nn/execution/device_trace.h; 0: none
};

struct NodeRecord {
  std::vector<int> nodes{};
  nn::NodeRun::Phase phase{};
  std::string kernel{};
  RecordClock::time_point begin{}, end{};
  std::optional<int64_t> bytes{}, flops{};
  uint64_t span = 0;  // as in PartRecord
};

struct ThreadRecord {
  std::vector<PartRecord> parts{};
  std::vector<NodeRecord> nodes{};
  // Traces the work that the thread enqueues. Null without a device, or when the device cannot be traced.
  nn::DeviceTracer* tracer = nullptr;
};

// What the accelerator ran in a step.
struct DeviceRecord {
  std::string name{};    // "NVIDIA H200"
  std::string method{};  // nn::DeviceTracer::method()
  std::vector<nn::DeviceActivity> activities{};
  int64_t lost = 0;  // number of lost records
};

struct StepRecord {
  int64_t global_step = 0;
  ThreadRecord trainer{};                // the step and its input
  std::vector<ThreadRecord> replicas{};  // everything else; several records per part with micro-steps
  std::optional<DeviceRecord> device{};  // set when there is a tracer
};

class StepRecorder {
 public:
  // `tracer` is that of the accelerator called `device`. Null when there is none.
  explicit StepRecorder(int replicas, std::unique_ptr<nn::DeviceTracer> tracer = nullptr, std::string device = "");
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;
  ~StepRecorder() = default;

  const std::vector<StepRecord>& steps() const { return steps_; }

  // For trainers. The trainer's thread begins a step. Then each replica's thread writes records of its own.
  void begin_step(int64_t global_step);
  ThreadRecord& trainer() { return steps_.back().trainer; }
  ThreadRecord& replica(int replica) { return steps_.back().replicas[static_cast<size_t>(replica)]; }
  // Call it after a step. Blocks until the device is done, and adds its work to the step's record.
  void collect();
  // Returns the observer for the replica's executor, which lives as long as the recorder.
  nn::NodeObserver& node_observer(int replica) { return *observers_[static_cast<size_t>(replica)]; }

 private:
  class Observer;
  std::unique_ptr<nn::DeviceTracer> tracer_;
  std::string device_;
  std::vector<StepRecord> steps_;
  std::vector<std::unique_ptr<nn::NodeObserver>> observers_;
};

// Writes a part's begin and end into `thread`, and makes the part a span of its tracer. Null: does nothing.
class RecordedPart {
 public:
  RecordedPart(ThreadRecord* thread, StepPart part) : thread_(thread), part_(part) {
    if (thread_ == nullptr) return;
    if (thread_->tracer != nullptr) span_ = thread_->tracer->begin_span();
    begin_ = RecordClock::now();
  }
  ~RecordedPart() {
    if (thread_ == nullptr) return;
    thread_->parts.push_back({part_, begin_, RecordClock::now(), span_});
    if (thread_->tracer != nullptr) thread_->tracer->end_span();
  }
  RecordedPart(const RecordedPart&) = delete;
  RecordedPart& operator=(const RecordedPart&) = delete;

 private:
  ThreadRecord* thread_;
  StepPart part_;
  RecordClock::time_point begin_;
  uint64_t span_ = 0;
};

}  // namespace trainyard::train
