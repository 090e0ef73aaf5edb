#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include "trainyard/formats/logs/trace.h"

namespace trainyard::formats {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr size_t kThreads = 1;  // the process of all threads

OrderedJson metadata(const char* what, size_t process, size_t track, OrderedJson arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", std::move(arguments)}};
}

double microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

OrderedJson complete_event(const TraceEvent& event, size_t process, size_t track) {
  OrderedJson arguments = OrderedJson::object();
  for (const auto& argument : event.arguments) {
    std::visit([&](const auto& given) { arguments[argument.first] = given; }, argument.second);
  }
  return {{"name", event.name},
          {"cat", event.category},
          {"ph", "X"},
          {"pid", process},
          {"tid", track},
          {"ts", microseconds(event.begin_ns)},
          {"dur", microseconds(event.duration_ns)},
          {"args", std::move(arguments)}};
}

OrderedJson end_of_flow(const TraceFlow& flow, const char* phase, size_t id, size_t process, size_t track,
                        int64_t time_ns) {
  return {{"name", flow.name}, {"cat", "flow"}, {"ph", phase}, {"id", id},
          {"pid", process},    {"tid", track},  {"bp", "e"},   {"ts", microseconds(time_ns)}};
}

// The process of each track. Devices are numbered in order of appearance.
std::vector<size_t> processes_of(const Trace& trace, std::vector<std::string>& names) {
  names = {trace.process};
  std::vector<size_t> processes;
  for (const TraceTrack& track : trace.tracks) {
    if (track.device.empty()) {
      processes.push_back(kThreads);
      continue;
    }
    const auto known = std::find(names.begin() + 1, names.end(), track.device);
    processes.push_back(kThreads + static_cast<size_t>(known - names.begin()));
    if (known == names.end()) names.push_back(track.device);
  }
  return processes;
}

std::string utc(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm fields{};
  char text[sizeof "2026-01-01T00:00:00Z"];
  ::gmtime_r(&seconds, &fields);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields)};
}

}  // namespace

std::string chrome_trace(const Trace& trace) {
  OrderedJson events = OrderedJson::array();
  std::vector<std::string> names;
  const std::vector<size_t> processes = processes_of(trace, names);
  for (size_t i = 0; i < names.size(); ++i) {
    events.push_back(metadata("process_name", kThreads + i, 0, {{"name", names[i]}}));
  }
  for (size_t track = 0; track < trace.tracks.size(); ++track) {
    events.push_back(metadata("thread_name", processes[track], track, {{"name", trace.tracks[track].name}}));
    events.push_back(metadata("thread_sort_index", processes[track], track, {{"sort_index", track}}));
  }
  for (size_t track = 0; track < trace.tracks.size(); ++track) {
    std::vector<const TraceEvent*> ordered;
    for (const TraceEvent& event : trace.tracks[track].events) ordered.push_back(&event);
    // When events begin together, viewers take the first as the outer one.
    std::stable_sort(ordered.begin(), ordered.end(), [](const TraceEvent* a, const TraceEvent* b) {
      return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->duration_ns > b->duration_ns;
    });
    for (const TraceEvent* event : ordered) events.push_back(complete_event(*event, processes[track], track));
  }
  for (size_t id = 0; id < trace.flows.size(); ++id) {
    const TraceFlow& flow = trace.flows[id];
    events.push_back(end_of_flow(flow, "s", id, processes[flow.from_track], flow.from_track, flow.from_ns));
    events.push_back(end_of_flow(flow, "f", id, processes[flow.to_track], flow.to_track, flow.to_ns));
  }
  OrderedJson about{{"start", utc(trace.start_unix_ns)}};
  for (const auto& [name, text] : trace.notes) about[name] = text;
  const OrderedJson json{
      {"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}, {"otherData", std::move(about)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::formats
