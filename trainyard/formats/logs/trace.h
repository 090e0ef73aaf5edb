// A trace: events with times, on threads and on streams of devices. Two formats: Chrome's JSON (chrome://tracing,
// Perfetto) and TensorFlow's StepStats as text (docs/formats/trace.md).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainyard::formats {

struct TraceEvent {
  std::string name{};
  std::string category{};  // one word: viewers select and colour by it
  int64_t begin_ns = 0;    // since the trace's start
  int64_t duration_ns = 0;
  std::vector<std::pair<std::string, std::variant<int64_t, std::string>>> arguments{};
};

struct TraceTrack {
  std::string name{};                // of the thread; of a device's stream one word
  std::vector<TraceEvent> events{};  // in any order; two of them are nested or apart
  std::string device{};              // "GPU:0"; empty: a thread
};

// An arrow from a moment of one track to a moment of another, from a cause to its effect. Both moments are within
// events.
struct TraceFlow {
  std::string name{};
  size_t from_track = 0, to_track = 0;
  int64_t from_ns = 0, to_ns = 0;  // since the trace's start
};

struct Trace {
  std::string process{};
  int64_t start_unix_ns = 0;  // wall clock of begin_ns = 0
  std::vector<TraceTrack> tracks{};
  std::vector<TraceFlow> flows{};
  std::vector<std::pair<std::string, std::string>> notes{};  // name and text
};

// Returns the trace in the object form of the Trace Event Format. Each event is a complete one ("X"), with times in
// microseconds since the start. All threads are in one process, and each device is a process. Flows are "s" and "f";
// notes are in otherData, together with the start. Bytes of text that are not UTF-8 are replaced.
[[nodiscard]] std::string chrome_trace(const Trace& trace);

// Returns the trace as tensorflow.StepStats in protobuf's text format: one device a track, named
// "/job:localhost/replica:0/task:0/device:CPU:<index of the thread>" or ".../device:GPU:0/<stream>", with the track's
// name in thread_names. The format does not support flows and notes.
[[nodiscard]] std::string step_stats_text(const Trace& trace);

}  // namespace trainyard::formats
