#include "trainyard/train/profile/step_recorder.h"

#include <utility>

#include "trainyard/core/base/enum_name.h"

namespace trainyard::train {

std::string_view part_name(StepPart part) {
  return core::enum_name<StepPart::kUpdate>(part, {"step", "input", "forward", "loss", "backward", "reduce", "update"});
}

class StepRecorder::Observer : public nn::NodeObserver {
 public:
  Observer(StepRecorder& recorder, int replica) : recorder_(recorder), replica_(replica) {}

  void begins() override {
    if (recorder_.tracer_ != nullptr) span_ = recorder_.tracer_->begin_span();
  }

  void ran(const nn::NodeRun& run) override {
    // Whoever has told no begin has no span.
    const uint64_t span = std::exchange(span_, 0);
    if (span != 0) recorder_.tracer_->end_span();
    recorder_.replica(replica_).nodes.push_back({.nodes = {run.nodes.begin(), run.nodes.end()},
                                                 .phase = run.phase,
                                                 .kernel = std::string(run.kernel),
                                                 .begin = run.begin,
                                                 .end = run.end,
                                                 .bytes = run.bytes,
                                                 .flops = run.flops,
                                                 .span = span});
  }

 private:
  StepRecorder& recorder_;
  int replica_;
  uint64_t span_ = 0;  // of the node that runs: no two of a replica do at once
};

StepRecorder::StepRecorder(int replicas, std::unique_ptr<nn::DeviceTracer> tracer, std::string device)
    : tracer_(std::move(tracer)), device_(std::move(device)) {
  for (int r = 0; r < replicas; ++r) observers_.push_back(std::make_unique<Observer>(*this, r));
}

void StepRecorder::begin_step(int64_t global_step) {
  const ThreadRecord replica{.parts = {}, .nodes = {}, .tracer = tracer_.get()};
  steps_.push_back(
      {.global_step = global_step, .trainer = {}, .replicas = std::vector<ThreadRecord>(observers_.size(), replica)});
}

void StepRecorder::collect() {
  if (tracer_ == nullptr) return;
  nn::DeviceRecords ran = tracer_->collect();
  steps_.back().device = DeviceRecord{
      .name = device_, .method = tracer_->method(), .activities = std::move(ran.activities), .lost = ran.lost};
}

}  // namespace trainyard::train
