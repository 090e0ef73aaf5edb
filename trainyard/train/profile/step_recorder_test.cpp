// What a trainer records of its steps, and the trace of it.

#include "trainyard/train/profile/step_recorder.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/profile/step_trace.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::step_recorder_test {
namespace {

using Json = nlohmann::json;

struct Recorded {
  std::vector<int64_t> steps;  // the global steps that a recording held
  std::string trace;           // Chrome's
  int calls = 0;
};

Recorded record_steps(int64_t first, int64_t steps, int64_t run_steps, int replicas = 1, int micro_steps = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.devices.executor = "reference";  // which runs each node by itself
  options.micro_steps = micro_steps;
  TowerTrainer trainer(options, tiny_source(64, 8, replicas));
  Recorded result;
  trainer.add(std::make_shared<RecordingCallback>(
      RecordingOptions{.warmup_steps = 3,
                       .replicas = replicas,
                       .record = [&](StepRecorder* recorder) { trainer.record(recorder); },
                       .recordings = {{first, steps, [&](std::span<const StepRecord> recorded) {
                                         ++result.calls;
                                         for (const StepRecord& step : recorded) {
                                           result.steps.push_back(step.global_step);
                                         }
                                         result.trace = chrome_trace(step_trace(recorded, options.graph));
                                       }}}}));
  trainer.train({.steps_per_epoch = run_steps});
  return result;
}

struct Span {
  std::string name, category;
  double begin, end;
};
std::map<std::string, std::vector<Span>> spans_by_thread(const std::string& text) {
  const Json trace = Json::parse(text);
  std::map<int, std::string> names;
  std::map<std::string, std::vector<Span>> spans;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    spans[names[event["tid"]]].push_back({event["name"], event["cat"], begin, begin + event["dur"].get<double>()});
  }
  return spans;
}

TEST(StepTrace, HoldsTheStepsPartsAndLayersInside) {
  const Recorded recorded = record_steps(-2, 1, 6);
  EXPECT_EQ(recorded.steps, std::vector<int64_t>{1}) << "of three warm-up steps the last but one";
  auto threads = spans_by_thread(recorded.trace);
  const std::vector<Span>& trainer = threads["trainer"];
  const std::vector<Span>& replica = threads["replica 0"];
  ASSERT_EQ(trainer.size(), 2u);
  EXPECT_EQ(trainer[0].name, "step");
  EXPECT_EQ(trainer[0].begin, 0);
  EXPECT_EQ(trainer[1].name, "input");

  std::vector<std::string> parts, forward;
  std::set<std::string> backward;
  std::map<std::string, Span> part;
  for (const Span& span : replica) {
    if (span.category != "step") continue;
    parts.push_back(span.name);
    part[span.name] = span;
    EXPECT_GE(span.begin, trainer[1].end);
    EXPECT_LE(span.end, trainer[0].end);
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"forward", "loss", "backward", "reduce", "update"}));
  constexpr double kRounding = 2e-3;  // of sums of doubles in microseconds
  for (const Span& span : replica) {
    if (span.category == "step") continue;
    if (span.category == "forward") forward.push_back(span.name);
    if (span.category == "backward") backward.insert(span.name);
    EXPECT_GE(span.begin, part[span.category].begin - kRounding) << span.name;
    EXPECT_LE(span.end, part[span.category].end + kRounding) << span.name;
  }
  EXPECT_EQ(forward, (std::vector<std::string>{"input", "conv", "bn", "relu", "pool", "fc"}));
  EXPECT_EQ(backward, (std::set<std::string>{"conv", "bn", "relu", "pool", "fc"}));
}

TEST(StepTrace, HoldsAllReplicasAndMicroSteps) {
  const Recorded recorded = record_steps(0, 2, 6, 2, 3);
  EXPECT_EQ(recorded.steps, (std::vector<int64_t>{3, 4}));
  auto threads = spans_by_thread(recorded.trace);
  for (const char* name : {"replica 0", "replica 1"}) {
    const auto count = [&](const std::string& what) {
      return std::count_if(threads[name].begin(), threads[name].end(),
                           [&](const Span& span) { return span.name == what; });
    };
    EXPECT_EQ(count("forward"), 6) << name;
    EXPECT_EQ(count("relu"), 12) << name;
    EXPECT_EQ(count("update"), 2) << name;
  }
}

TEST(RecordingCallback, TakesWhatAShortRunHas) {
  EXPECT_EQ(record_steps(0, 10, 5).steps, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(record_steps(0, 10, 5).calls, 1);
  EXPECT_EQ(record_steps(0, 10, 3).calls, 0);
}

TEST(RecordingCallback, KeepsOverlappingRecordingsApart) {
  TowerTrainer trainer(tiny_options(), tiny_source(64, 8));
  std::map<std::string, std::vector<int64_t>> steps;
  const auto recording = [&](const std::string& name, int64_t first, int64_t count) {
    return Recording{first, count, [&steps, name](std::span<const StepRecord> recorded) {
                       for (const StepRecord& step : recorded) steps[name].push_back(step.global_step);
                       EXPECT_EQ(recorded.front().replicas.front().parts.size(), 5u) << name;
                     }};
  };
  trainer.add(std::make_shared<RecordingCallback>(RecordingOptions{
      .record = [&](StepRecorder* recorder) { trainer.record(recorder); },
      .recordings = {recording("a", 0, 1), recording("b", 0, 3), recording("c", 2, 2), recording("d", 6, 9)}}));
  trainer.train({.steps_per_epoch = 8});
  EXPECT_EQ(steps["a"], (std::vector<int64_t>{0}));
  EXPECT_EQ(steps["b"], (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(steps["c"], (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(steps["d"], (std::vector<int64_t>{6, 7}));
}

TEST(RecordingCallback, HandsOnNoStepThatFailed) {
  TowerTrainerOptions options = tiny_options();
  TowerTrainer trainer(options, tiny_source(16, 8, 1, false));
  int calls = 0;
  trainer.add(std::make_shared<RecordingCallback>(
      RecordingOptions{.record = [&](StepRecorder* recorder) { trainer.record(recorder); },
                       .recordings = {{0, 5, [&](std::span<const StepRecord>) { ++calls; }}}}));
  EXPECT_THROW(trainer.train({.steps_per_epoch = 5}), core::Error) << "there are two batches";
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace trainyard::train::step_recorder_test
