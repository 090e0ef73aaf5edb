#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include "trainyard/formats/trace.h"

namespace trainyard::formats {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kProcess = 1;

Json metadata(const char* what, size_t thread, Json arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", std::move(arguments)}};
}

Json complete_event(const TraceEvent& event, size_t thread) {
  Json arguments = Json::object();
  for (const auto& argument : event.arguments) {
    std::visit([&](const auto& given) { arguments[argument.first] = given; }, argument.second);
  }
  return {{"name", event.name},
          {"cat", event.category},
          {"ph", "X"},
          {"pid", kProcess},
          {"tid", thread},
          {"ts", static_cast<double>(event.begin_ns) / 1000},
          {"dur", static_cast<double>(event.duration_ns) / 1000},
          {"args", std::move(arguments)}};
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
  Json events = Json::array();
  events.push_back(metadata("process_name", 0, {{"name", trace.process}}));
  for (size_t thread = 0; thread < trace.tracks.size(); ++thread) {
    events.push_back(metadata("thread_name", thread, {{"name", trace.tracks[thread].name}}));
    events.push_back(metadata("thread_sort_index", thread, {{"sort_index", thread}}));
  }
  for (size_t thread = 0; thread < trace.tracks.size(); ++thread) {
    std::vector<const TraceEvent*> ordered;
    for (const TraceEvent& event : trace.tracks[thread].events) ordered.push_back(&event);
    // Of events that begin together viewers take the first as the outer one.
    std::stable_sort(ordered.begin(), ordered.end(), [](const TraceEvent* a, const TraceEvent* b) {
      return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->duration_ns > b->duration_ns;
    });
    for (const TraceEvent* event : ordered) events.push_back(complete_event(*event, thread));
  }
  const Json json{{"traceEvents", std::move(events)},
                  {"displayTimeUnit", "ms"},
                  {"otherData", {{"start", utc(trace.start_unix_ns)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::formats
