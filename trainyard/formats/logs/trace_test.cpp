#include "trainyard/formats/logs/trace.h"

#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::formats::trace_test {
namespace {

using Json = nlohmann::json;

// 2023-11-14T22:13:20Z and some nanoseconds; the inner event begins with the outer one and is listed first.
Trace sample_trace() {
  const TraceEvent outer{.name = "forward", .category = "step", .begin_ns = 1500, .duration_ns = 7250};
  const TraceEvent inner{.name = "conv1 + \"bn1\"",
                         .category = "forward",
                         .begin_ns = 1500,
                         .duration_ns = 999,
                         .arguments = {{"kernel", "3x3\n\xc3\xa9"}, {"flops", int64_t{1} << 40}}};
  return {.process = "trainyard",
          .start_unix_ns = 1'700'000'000'000'000'700,
          .tracks = {{"trainer", {}}, {"replica 0", {inner, outer}}}};
}

TEST(ChromeTrace, HoldsProcessThreadsAndEvents) {
  const Json json = Json::parse(chrome_trace(sample_trace()));
  EXPECT_EQ(json["otherData"]["start"], "2023-11-14T22:13:20Z");
  std::vector<std::string> threads;
  std::vector<Json> events;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "thread_name") threads.push_back(event["args"]["name"]);
    if (event["ph"] == "X") events.push_back(event);
  }
  EXPECT_EQ(json["traceEvents"][0]["args"]["name"], "trainyard");
  EXPECT_EQ(threads, (std::vector<std::string>{"trainer", "replica 0"}));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["name"], "forward") << "of events that begin together the longer one comes first";
  EXPECT_EQ(events[0]["ts"], 1.5);
  EXPECT_EQ(events[0]["dur"], 7.25);
  EXPECT_EQ(events[0]["tid"], 1);
  EXPECT_EQ(events[0]["args"], Json::object());
  EXPECT_EQ(events[1]["name"], "conv1 + \"bn1\"");
  EXPECT_EQ(events[1]["cat"], "forward");
  EXPECT_EQ(events[1]["dur"], 0.999);
  EXPECT_EQ(events[1]["args"], (Json{{"kernel", "3x3\n\xc3\xa9"}, {"flops", int64_t{1} << 40}}));
}

TEST(ChromeTrace, KeepsTheOrderOfEventsWithTheSameTimes) {
  std::vector<TraceEvent> given;
  for (const char* const name : {"a", "b", "c"}) {
    given.push_back({.name = name, .category = "step", .begin_ns = 5000, .duration_ns = 7000});
  }
  const Json json = Json::parse(chrome_trace({.process = "p", .tracks = {{"t", given}}}));
  std::string names;
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] == "X") names += event["name"].get<std::string>();
  }
  EXPECT_EQ(names, "abc");
}

TEST(ChromeTrace, KeepsNanosecondsOfALongRun) {
  constexpr int64_t kDay = int64_t{24} * 3600 * 1'000'000'000;
  const Json json = Json::parse(
      chrome_trace({.process = "p", .tracks = {{"t", {{.name = "e", .category = "c", .begin_ns = kDay + 1}}}}}));
  EXPECT_EQ(json["traceEvents"].back()["ts"].get<double>(), (static_cast<double>(kDay) + 1) / 1000);
}

TEST(ChromeTrace, IsOneLine) {
  const std::string text = chrome_trace(sample_trace());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(ChromeTrace, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(Json::parse(chrome_trace({.process = "\xff"}))["traceEvents"][0]["args"]["name"], "\xef\xbf\xbd");
}

// The stream's first event is handed over by the thread's only one.
Trace device_trace() {
  return {
      .process = "trainyard",
      .tracks = {{"replica 0", {{.name = "conv", .category = "forward", .begin_ns = 1000, .duration_ns = 500}}},
                 {"stream:7", {{.name = "gemm", .category = "kernel", .begin_ns = 2000, .duration_ns = 9000}}, "GPU:1"},
                 {"stream:8", {}, "GPU:1"},
                 {"stream:7", {}, "GPU:0"}},
      .flows = {{"launch", 0, 1, 1200, 2000}},
      .notes = {{"device", "fake \"1\""}}};
}

TEST(ChromeTrace, HoldsDevicesAsProcessesAndFlowsBetweenTracks) {
  const Json json = Json::parse(chrome_trace(device_trace()));
  std::vector<std::string> processes;
  std::vector<int> pids;
  Json start, end;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") pids.push_back(event["pid"]);
    if (event["ph"] == "s") start = event;
    if (event["ph"] == "f") end = event;
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"trainyard", "GPU:1", "GPU:0"}));
  EXPECT_EQ(pids, (std::vector<int>{1, 2, 2, 3}));
  EXPECT_EQ(json["otherData"]["device"], "fake \"1\"");
  ASSERT_TRUE(start.is_object() && end.is_object());
  EXPECT_EQ(start["id"], end["id"]);
  EXPECT_EQ(start["cat"], end["cat"]);
  EXPECT_EQ(start["name"], end["name"]);
  EXPECT_EQ(start["pid"], 1);
  EXPECT_EQ(start["tid"], 0);
  EXPECT_EQ(start["ts"], 1.2);
  EXPECT_EQ(end["pid"], 2);
  EXPECT_EQ(end["tid"], 1);
  EXPECT_EQ(end["ts"], 2);
  EXPECT_EQ(end["bp"], "e") << "it ends at the event that encloses it, not at the next one";
}

TEST(ChromeTrace, NumbersProcessesTracksAndFlows) {
  Trace trace = device_trace();
  trace.flows.push_back({"launch", 2, 0, 1300, 2100});
  const Json json = Json::parse(chrome_trace(trace));
  Json processes = Json::array(), orders = Json::array(), flows = Json::array();
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes.push_back({event["pid"], event["tid"], event["args"]["name"]});
    if (event["name"] == "thread_sort_index") {
      orders.push_back({event["pid"], event["tid"], event["args"]["sort_index"]});
    }
    if (event["ph"] == "s" || event["ph"] == "f") {
      flows.push_back({event["ph"], event["id"], event["pid"], event["tid"], event["ts"]});
    }
  }
  EXPECT_EQ(processes, Json::parse(R"([[1, 0, "trainyard"], [2, 0, "GPU:1"], [3, 0, "GPU:0"]])"));
  EXPECT_EQ(orders, Json::parse("[[1, 0, 0], [2, 1, 1], [2, 2, 2], [3, 3, 3]]"));
  EXPECT_EQ(flows, Json::parse(R"([["s", 0, 1, 0, 1.2], ["f", 0, 2, 1, 2.0], )"
                               R"(["s", 1, 2, 2, 1.3], ["f", 1, 1, 0, 2.1]])"));
}

TEST(StepStats, WritesEachEventWithItsThreadAndTimes) {
  const TraceEvent event{.name = "\x1f ~\x7f", .category = "kernel", .begin_ns = 1500, .duration_ns = 7250};
  const std::string device = "dev_stats {\n  device: \"/job:localhost/replica:0/task:0/device:";
  EXPECT_EQ(step_stats_text({.process = "p",
                             .start_unix_ns = 5000,
                             .tracks = {{"one", {}}, {"stream:7", {event}, "GPU:1"}, {"two", {}}}}),
            device + "CPU:0\"\n  thread_names {\n    key: 0\n    value: \"one\"\n  }\n}\n" + device +
                "GPU:1/stream:7\"\n  node_stats {\n    node_name: \"\\037 ~\\177\"\n    all_start_micros: 6\n"
                "    op_end_rel_micros: 7\n    all_end_rel_micros: 7\n    timeline_label: \"kernel: \\037 ~\\177\"\n"
                "    thread_id: 1\n    all_start_nanos: 6500\n    op_end_rel_nanos: 7250\n"
                "    all_end_rel_nanos: 7250\n  }\n  thread_names {\n    key: 1\n    value: \"stream:7\"\n  }\n}\n" +
                device + "CPU:1\"\n  thread_names {\n    key: 2\n    value: \"two\"\n  }\n}\n");
}

TEST(StepStats, NamesDevicesAfterThreads) {
  const std::string text = step_stats_text(device_trace());
  for (const char* device : {"CPU:0", "GPU:1/stream:7", "GPU:1/stream:8", "GPU:0/stream:7"}) {
    EXPECT_NE(text.find(fmt::format("device: \"/job:localhost/replica:0/task:0/device:{}\"\n", device)),
              std::string::npos)
        << text;
  }
}

// tests/tensorboard_parses_step_stats.py parses it with TensorBoard's copy of TensorFlow's messages.
TEST(StepStats, WritesAFileForTensorBoard) {
  const core::TempDir temp;
  const char* given = std::getenv("TRAINYARD_TENSORBOARD_DIR");
  const std::string path = core::join_path(given != nullptr ? given : temp.path(), "step_stats.txt");
  core::local_file_system().write_file_atomically(path, step_stats_text(sample_trace()));
  const std::string text = core::local_file_system().read_file(path);
  EXPECT_EQ(text.find("dev_stats {\n  device: \"/job:localhost/replica:0/task:0/device:CPU:0\"\n  thread_names {"), 0u);
  EXPECT_NE(text.find("node_name: \"conv1 + \\\"bn1\\\"\"\n"), std::string::npos);
  EXPECT_NE(text.find("all_start_nanos: 1700000000000002200\n"), std::string::npos);
  EXPECT_NE(
      text.find("timeline_label: \"forward: conv1 + \\\"bn1\\\", kernel 3x3\\012\\303\\251, flops 1099511627776\""),
      std::string::npos);
  // From 2.2 us to 3.199 us, and to 9.45 us.
  EXPECT_NE(text.find("all_start_micros: 1700000000000002\n    op_end_rel_micros: 1\n"), std::string::npos);
  EXPECT_NE(text.find("all_start_micros: 1700000000000002\n    op_end_rel_micros: 7\n"), std::string::npos);
}

TEST(ChromeTrace, WritesEachEventWhole) {
  const Json expected = Json::parse(R"({
    "traceEvents": [
      {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "trainyard"}},
      {"name": "process_name", "ph": "M", "pid": 2, "tid": 0, "args": {"name": "GPU:1"}},
      {"name": "process_name", "ph": "M", "pid": 3, "tid": 0, "args": {"name": "GPU:0"}},
      {"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "replica 0"}},
      {"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": 0, "args": {"sort_index": 0}},
      {"name": "thread_name", "ph": "M", "pid": 2, "tid": 1, "args": {"name": "stream:7"}},
      {"name": "thread_sort_index", "ph": "M", "pid": 2, "tid": 1, "args": {"sort_index": 1}},
      {"name": "thread_name", "ph": "M", "pid": 2, "tid": 2, "args": {"name": "stream:8"}},
      {"name": "thread_sort_index", "ph": "M", "pid": 2, "tid": 2, "args": {"sort_index": 2}},
      {"name": "thread_name", "ph": "M", "pid": 3, "tid": 3, "args": {"name": "stream:7"}},
      {"name": "thread_sort_index", "ph": "M", "pid": 3, "tid": 3, "args": {"sort_index": 3}},
      {"name": "conv", "cat": "forward", "ph": "X", "pid": 1, "tid": 0, "ts": 1.0, "dur": 0.5, "args": {}},
      {"name": "gemm", "cat": "kernel", "ph": "X", "pid": 2, "tid": 1, "ts": 2.0, "dur": 9.0, "args": {}},
      {"name": "launch", "cat": "flow", "ph": "s", "id": 0, "pid": 1, "tid": 0, "bp": "e", "ts": 1.2},
      {"name": "launch", "cat": "flow", "ph": "f", "id": 0, "pid": 2, "tid": 1, "bp": "e", "ts": 2.0}],
    "displayTimeUnit": "ms",
    "otherData": {"start": "1970-01-01T00:00:00Z", "device": "fake \"1\""}})");
  EXPECT_EQ(Json::parse(chrome_trace(device_trace())), expected);
}

}  // namespace
}  // namespace trainyard::formats::trace_test
