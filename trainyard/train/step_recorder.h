// Everything that steps did, with times: for traces, profiles and the table of layers. A trainer that is told to record
// writes into one; at other times it costs nothing.
//
//   StepRecorder recorder(replicas);
//   trainer.record(&recorder);        // between steps
//   ... steps ...
//   trainer.record(nullptr);
//   for (const StepRecord& step : recorder.steps()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/nn/node_observer.h"

namespace trainyard::train {

// Parts of a step. Nodes are timed inside kForward and kBackward.
enum class StepPart { kStep, kInput, kForward, kLoss, kBackward, kReduce, kUpdate };
std::string_view part_name(StepPart part);  // "step", "input", ...

using RecordClock = nn::NodeRun::Clock;

struct PartRecord {
  StepPart part;
  RecordClock::time_point begin, end;
};

struct NodeRecord {
  std::vector<int> nodes;
  nn::NodeRun::Phase phase;
  std::string kernel;
  RecordClock::time_point begin, end;
  std::optional<int64_t> bytes, flops;
};

struct ThreadRecord {
  std::vector<PartRecord> parts;
  std::vector<NodeRecord> nodes;
};

struct StepRecord {
  int64_t global_step = 0;
  ThreadRecord trainer;                // the step and its input
  std::vector<ThreadRecord> replicas;  // all else; several of a part with micro-steps
};

class StepRecorder {
 public:
  explicit StepRecorder(int replicas);
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;
  ~StepRecorder() = default;

  const std::vector<StepRecord>& steps() const { return steps_; }

  // For trainers. The trainer's thread begins a step; then each replica's thread writes its own records.
  void begin_step(int64_t global_step);
  ThreadRecord& trainer() { return steps_.back().trainer; }
  ThreadRecord& replica(int replica) { return steps_.back().replicas[static_cast<size_t>(replica)]; }
  // For the replica's executor, as long as the recorder lives.
  nn::NodeObserver& node_observer(int replica) { return *observers_[static_cast<size_t>(replica)]; }

 private:
  class Observer;
  std::vector<StepRecord> steps_;
  std::vector<std::unique_ptr<nn::NodeObserver>> observers_;
};

// Writes a part's begin and end into `thread`; null: nothing.
class RecordedPart {
 public:
  RecordedPart(ThreadRecord* thread, StepPart part) : thread_(thread), part_(part) {
    if (thread_ != nullptr) begin_ = RecordClock::now();
  }
  ~RecordedPart() {
    if (thread_ != nullptr) thread_->parts.push_back({part_, begin_, RecordClock::now()});
  }
  RecordedPart(const RecordedPart&) = delete;
  RecordedPart& operator=(const RecordedPart&) = delete;

 private:
  ThreadRecord* thread_;
  StepPart part_;
  RecordClock::time_point begin_;
};

}  // namespace trainyard::train
