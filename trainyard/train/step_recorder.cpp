#include "trainyard/train/step_recorder.h"

namespace trainyard::train {

std::string_view part_name(StepPart part) {
  switch (part) {
    case StepPart::kStep:
      return "step";
    case StepPart::kInput:
      return "input";
    case StepPart::kForward:
      return "forward";
    case StepPart::kLoss:
      return "loss";
    case StepPart::kBackward:
      return "backward";
    case StepPart::kReduce:
      return "reduce";
    case StepPart::kUpdate:
      return "update";
  }
  return "";
}

class StepRecorder::Observer : public nn::NodeObserver {
 public:
  Observer(StepRecorder& recorder, int replica) : recorder_(recorder), replica_(replica) {}

  void ran(const nn::NodeRun& run) override {
    recorder_.replica(replica_).nodes.push_back({.nodes = {run.nodes.begin(), run.nodes.end()},
                                                 .phase = run.phase,
                                                 .kernel = std::string(run.kernel),
                                                 .begin = run.begin,
                                                 .end = run.end,
                                                 .bytes = run.bytes,
                                                 .flops = run.flops});
  }

 private:
  StepRecorder& recorder_;
  int replica_;
};

StepRecorder::StepRecorder(int replicas) {
  for (int r = 0; r < replicas; ++r) observers_.push_back(std::make_unique<Observer>(*this, r));
}

void StepRecorder::begin_step(int64_t global_step) {
  steps_.push_back(
      {.global_step = global_step, .trainer = {}, .replicas = std::vector<ThreadRecord>(observers_.size())});
}

}  // namespace trainyard::train
