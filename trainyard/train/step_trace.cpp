#include "trainyard/train/step_trace.h"

#include <chrono>
#include <string>

#include <fmt/format.h>

namespace trainyard::train {
namespace {

int64_t nanoseconds(RecordClock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

class TraceMaker {
 public:
  TraceMaker(std::span<const StepRecord> steps, const nn::Graph& graph) : graph_(graph) {
    if (steps.empty()) return;
    // Parts are recorded as they end: the step itself is the last.
    start_ = steps.front().trainer.parts.back().begin;
  }

  // The wall clock can be read only now: it was as long ago as the other clock says.
  int64_t start_unix_ns() const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - nanoseconds(RecordClock::now() - start_);
  }

  void add(formats::TraceTrack& track, const ThreadRecord& thread, int64_t global_step) const {
    for (const PartRecord& part : thread.parts) {
      track.events.push_back({.name = std::string(part_name(part.part)),
                              .category = "step",
                              .begin_ns = nanoseconds(part.begin - start_),
                              .duration_ns = nanoseconds(part.end - part.begin),
                              .arguments = {{"global_step", global_step}}});
    }
    for (const NodeRecord& run : thread.nodes) track.events.push_back(event(run));
  }

 private:
  formats::TraceEvent event(const NodeRecord& run) const {
    std::string names, kinds;
    for (const int id : run.nodes) {
      const nn::Node& node = graph_.nodes[static_cast<size_t>(id)];
      const char* separator = names.empty() ? "" : " + ";
      names += fmt::format("{}{}", separator, node.name);
      kinds += fmt::format("{}{}", separator, node.kind());
    }
    formats::TraceEvent event{.name = names.empty() ? run.kernel : names,
                              .category = run.phase == nn::NodeRun::Phase::kForward ? "forward" : "backward",
                              .begin_ns = nanoseconds(run.begin - start_),
                              .duration_ns = nanoseconds(run.end - run.begin),
                              .arguments = {{"kernel", run.kernel}, {"kind", kinds}}};
    if (run.bytes) event.arguments.emplace_back("bytes", *run.bytes);
    if (run.flops) event.arguments.emplace_back("flops", *run.flops);
    return event;
  }

  const nn::Graph& graph_;
  RecordClock::time_point start_;
};

}  // namespace

formats::Trace step_trace(std::span<const StepRecord> steps, const nn::Graph& graph) {
  const TraceMaker maker(steps, graph);
  formats::Trace trace{.process = "trainyard " + graph.name,
                       .start_unix_ns = steps.empty() ? 0 : maker.start_unix_ns(),
                       .tracks = {{"trainer", {}}}};
  for (const StepRecord& step : steps) {
    trace.tracks.resize(1 + step.replicas.size());
    maker.add(trace.tracks[0], step.trainer, step.global_step);
    for (size_t r = 0; r < step.replicas.size(); ++r) {
      trace.tracks[1 + r].name = fmt::format("replica {}", r);
      maker.add(trace.tracks[1 + r], step.replicas[r], step.global_step);
    }
  }
  return trace;
}

}  // namespace trainyard::train
