#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/formats/logs/trace.h"

namespace trainyard::formats {
namespace {

// Escapes text for protobuf's text format: bytes that are not printable ASCII become octal numbers.
std::string quoted_protobuf(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += fmt::format("\\{}", c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\{:03o}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string label(const TraceEvent& event) {
  std::string text = fmt::format("{}: {}", event.category, event.name);
  for (const auto& [name, value] : event.arguments) {
    text += std::visit([&name = name](const auto& given) { return fmt::format(", {} {}", name, given); }, value);
  }
  return text;
}

}  // namespace

std::string step_stats_text(const Trace& trace) {
  std::string text;
  const auto out = std::back_inserter(text);
  size_t threads = 0;
  for (size_t index = 0; index < trace.tracks.size(); ++index) {
    const TraceTrack& track = trace.tracks[index];
    const std::string device =
        track.device.empty() ? fmt::format("CPU:{}", threads++) : fmt::format("{}/{}", track.device, track.name);
    fmt::format_to(out, "dev_stats {{\n  device: {}\n",
                   quoted_protobuf("/job:localhost/replica:0/task:0/device:" + device));
    for (const TraceEvent& event : track.events) {
      const int64_t begin_ns = trace.start_unix_ns + event.begin_ns;
      const int64_t begin_us = begin_ns / 1000;
      // Whole microseconds from floored begin to floored end: what nests in nanoseconds nests here, too.
      const int64_t duration_us = (begin_ns + event.duration_ns) / 1000 - begin_us;
      fmt::format_to(out,
                     "  node_stats {{\n    node_name: {}\n    all_start_micros: {}\n    op_end_rel_micros: {}\n"
                     "    all_end_rel_micros: {}\n    timeline_label: {}\n    thread_id: {}\n    all_start_nanos: {}\n"
                     "    op_end_rel_nanos: {}\n    all_end_rel_nanos: {}\n  }}\n",
                     quoted_protobuf(event.name), begin_us, duration_us, duration_us, quoted_protobuf(label(event)),
                     index, begin_ns, event.duration_ns, event.duration_ns);
    }
    fmt::format_to(out, "  thread_names {{\n    key: {}\n    value: {}\n  }}\n}}\n", index,
                   quoted_protobuf(track.name));
  }
  return text;
}

}  // namespace trainyard::formats
