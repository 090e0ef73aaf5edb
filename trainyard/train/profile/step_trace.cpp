#include "trainyard/train/profile/step_trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/train/profile/device_time.h"

namespace trainyard::train {
namespace {

int64_t nanoseconds(RecordClock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

std::string_view category_of(nn::DeviceActivity::Kind kind) {
  switch (kind) {
    case nn::DeviceActivity::Kind::kKernel:
      return "kernel";
    case nn::DeviceActivity::Kind::kCopy:
      return "copy";
    case nn::DeviceActivity::Kind::kFill:
      return "fill";
    case nn::DeviceActivity::Kind::kSpan:
      return "span";
  }
  return "";
}

class TraceMaker {
 public:
  TraceMaker(std::span<const StepRecord> steps, const nn::Graph& graph) : graph_(graph) {
    if (steps.empty()) return;
    // Parts are recorded as they end: the step itself is the last.
    start_ = steps.front().trainer.parts.back().begin;
    trace_.start_unix_ns = start_unix_ns();
    replicas_ = steps.front().replicas.size();
    trace_.tracks.resize(1 + replicas_);
    for (size_t r = 0; r < replicas_; ++r) {
      trace_.tracks[1 + r].name =
          fmt::format("replica {}{}", r, steps.front().device ? ", handing over to the device" : "");
    }
  }

  void add(const StepRecord& step) {
    add(trace_.tracks[0], step.trainer, step.global_step);
    for (size_t r = 0; r < replicas_; ++r) add(trace_.tracks[1 + r], step.replicas[r], step.global_step);
    if (!step.device) return;
    lost_ += step.device->lost;
    trace_.notes = {
        {"device", step.device->name}, {"device_times", step.device->method}, {"lost_records", std::to_string(lost_)}};
    for (const DeviceWork& work : device_work(step)) add(work, step.global_step);
  }

  formats::Trace take() {
    trace_.process = "trainyard " + graph_.name;
    return std::move(trace_);
  }

 private:
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

  std::string joined(const NodeRecord& run, bool kinds) const {
    std::string text;
    for (const int id : run.nodes) {
      const nn::Node& node = graph_.nodes[static_cast<size_t>(id)];
      text += fmt::format("{}{}", text.empty() ? "" : " + ", kinds ? node.kind() : node.name);
    }
    return text;
  }

  std::string name_of(const NodeRecord& run) const { return run.nodes.empty() ? run.kernel : joined(run, false); }

  formats::TraceEvent event(const NodeRecord& run) const {
    formats::TraceEvent event{.name = name_of(run),
                              .category = run.phase == nn::NodeRun::Phase::kForward ? "forward" : "backward",
                              .begin_ns = nanoseconds(run.begin - start_),
                              .duration_ns = nanoseconds(run.end - run.begin),
                              .arguments = {{"kernel", run.kernel}, {"kind", joined(run, true)}}};
    if (run.bytes) event.arguments.emplace_back("bytes", *run.bytes);
    if (run.flops) event.arguments.emplace_back("flops", *run.flops);
    return event;
  }

  formats::TraceEvent event(const DeviceWork& work, int64_t global_step) const {
    const nn::DeviceActivity& ran = *work.activity;
    const std::string layer = work.node == nullptr ? "" : name_of(*work.node);
    const std::string part(work.part ? part_name(*work.part) : "");
    formats::TraceEvent event{.name = !ran.name.empty() ? ran.name
                                      : !layer.empty()  ? layer
                                                        : part,
                              .category = std::string(category_of(ran.kind)),
                              .begin_ns = nanoseconds(ran.begin - start_),
                              .duration_ns = nanoseconds(ran.end - ran.begin),
                              .arguments = {{"global_step", global_step}}};
    if (!layer.empty()) event.arguments.emplace_back("layer", layer);
    if (!part.empty()) event.arguments.emplace_back("part", part);
    if (ran.kind == nn::DeviceActivity::Kind::kKernel) {
      event.arguments.emplace_back("grid", fmt::format("{}", fmt::join(ran.grid, "x")));
      event.arguments.emplace_back("block", fmt::format("{}", fmt::join(ran.block, "x")));
      event.arguments.emplace_back("registers", ran.registers);
      event.arguments.emplace_back("shared_bytes", ran.shared_bytes);
    } else if (ran.kind != nn::DeviceActivity::Kind::kSpan) {
      event.arguments.emplace_back("bytes", ran.bytes);
    }
    return event;
  }

  void add(const DeviceWork& work, int64_t global_step) {
    const nn::DeviceActivity& ran = *work.activity;
    const size_t track = track_of(ran);
    trace_.tracks[track].events.push_back(event(work, global_step));
    if (work.replica < 0 || !ran.handed_over) return;
    trace_.flows.push_back({.name = "hand-over",
                            .from_track = 1 + static_cast<size_t>(work.replica),
                            .to_track = track,
                            .from_ns = nanoseconds(*ran.handed_over - start_),
                            .to_ns = nanoseconds(ran.begin - start_)});
  }

  // The first track of the stream in which the activity begins after all others: activities come in the order of their
  // begins.
  size_t track_of(const nn::DeviceActivity& ran) {
    std::vector<Lane>& lanes = lanes_[{ran.device, ran.stream}];
    auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& one) { return one.end <= ran.begin; });
    if (lane == lanes.end()) {
      trace_.tracks.push_back(
          {.name = fmt::format("stream:{}{}", ran.stream, lanes.empty() ? "" : fmt::format("#{}", 1 + lanes.size())),
           .device = fmt::format("GPU:{}", ran.device)});
      lane = lanes.insert(lanes.end(), {.track = trace_.tracks.size() - 1});
    }
    lane->end = ran.end;
    return lane->track;
  }

  struct Lane {
    size_t track;
    RecordClock::time_point end;
  };
  const nn::Graph& graph_;
  RecordClock::time_point start_;
  size_t replicas_ = 0;
  int64_t lost_ = 0;
  formats::Trace trace_{.tracks = {{"trainer", {}}}};
  std::map<std::pair<int64_t, int64_t>, std::vector<Lane>> lanes_;  // by device and stream
};

}  // namespace

formats::Trace step_trace(std::span<const StepRecord> steps, const nn::Graph& graph) {
  TraceMaker maker(steps, graph);
  for (const StepRecord& step : steps) maker.add(step);
  return maker.take();
}

}  // namespace trainyard::train
