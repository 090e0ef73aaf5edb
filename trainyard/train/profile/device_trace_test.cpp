// Recorded steps on an accelerator that is a fake on the CPU, and tells what it ran: whose it is, the trace, the table.
#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/golden.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/profile/device_time.h"
#include "trainyard/train/profile/layer_report.h"
#include "trainyard/train/profile/step_trace.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::device_trace_test {
namespace {

using Json = nlohmann::json;
using Kind = nn::DeviceActivity::Kind;
using Phase = nn::NodeRun::Phase;

RecordClock::time_point at_us(int64_t microseconds) {
  return RecordClock::time_point(std::chrono::microseconds(microseconds));
}

nn::DeviceActivity kernel(const std::string& name, uint64_t span, int64_t begin, int64_t end, int64_t stream = 7) {
  nn::DeviceActivity activity{.name = name, .device = 0, .stream = stream, .begin = at_us(begin), .end = at_us(end)};
  activity.span = span;
  activity.grid = {8, 2, 1};
  activity.block = {256, 1, 1};
  activity.registers = 40;
  activity.shared_bytes = 1024;
  return activity;
}

// A step of the tiny model (0 input, 1 conv, 2 bn, 3 relu, 4 pool, 5 fc) on the device: handed over in the first 100
// us, run from 50 us to 900 us, waited for until 1000 us.
StepRecord sample_step() {
  StepRecord step{.global_step = 3, .trainer = {}, .replicas = std::vector<ThreadRecord>(1)};
  ThreadRecord& replica = step.replicas[0];
  const auto part = [&](StepPart which, int64_t begin, int64_t end, uint64_t span) {
    replica.parts.push_back({which, at_us(begin), at_us(end), span});
  };
  const auto node = [&](std::vector<int> nodes, Phase phase, int64_t begin, uint64_t span) {
    replica.nodes.push_back({.nodes = std::move(nodes),
                             .phase = phase,
                             .kernel = "what the executor calls it",
                             .begin = at_us(begin),
                             .end = at_us(begin + 10),
                             .bytes = {},
                             .flops = {},
                             .span = span});
  };
  part(StepPart::kForward, 10, 45, 1);
  node({1, 2, 3}, Phase::kForward, 10, 2);
  node({5}, Phase::kForward, 30, 3);
  part(StepPart::kLoss, 45, 50, 4);
  part(StepPart::kBackward, 50, 90, 5);
  node({5}, Phase::kBackward, 60, 6);
  node({1, 2, 3}, Phase::kBackward, 70, 7);
  part(StepPart::kReduce, 90, 91, 8);
  part(StepPart::kUpdate, 92, 100, 9);
  step.trainer.parts = {{StepPart::kInput, at_us(0), at_us(10)}, {StepPart::kStep, at_us(0), at_us(1000)}};

  DeviceRecord device{.name = "fake", .method = "counting", .activities = {}, .lost = 2};
  nn::DeviceActivity copy = kernel("copy pinned to device", 0, 20, 60, 13);
  copy.kind = Kind::kCopy;
  copy.bytes = 4096;
  copy.handed_over = at_us(5);
  nn::DeviceActivity first = kernel("gemm", 2, 60, 160);
  first.handed_over = at_us(12);
  nn::DeviceActivity sum = kernel("add", 0, 480, 500);
  sum.handed_over = at_us(72);  // autograd's, between two layers
  device.activities = {copy,
                       first,
                       kernel("norm", 2, 150, 260),  // begins before gemm has ended
                       kernel("fill", 1, 260, 270),  // in forward, but of no layer
                       kernel("gemm", 3, 270, 300),
                       kernel("cross_entropy", 4, 300, 330),
                       kernel("gemm", 6, 330, 480),
                       sum,
                       kernel("gemm", 7, 500, 700),
                       kernel("norm_gradient", 7, 600, 650, 8),  // on a stream beside
                       kernel("momentum", 9, 700, 800),
                       kernel("of somebody else", 77, 890, 900)};
  step.device = device;
  return step;
}

TEST(DeviceTime, FindsWhoseWorkItIs) {
  const StepRecord step = sample_step();
  const std::vector<DeviceWork> work = device_work(step);
  ASSERT_EQ(work.size(), 12u);
  EXPECT_FALSE(work[0].part) << "handed over before forward";
  EXPECT_EQ(work[0].replica, -1);
  EXPECT_EQ(work[1].node, &step.replicas[0].nodes[0]);
  EXPECT_EQ(work[1].part, StepPart::kForward);
  EXPECT_EQ(work[3].node, nullptr);
  EXPECT_EQ(work[3].part, StepPart::kForward);
  EXPECT_EQ(work[6].part, StepPart::kBackward);
  EXPECT_EQ(work[7].node, nullptr);
  EXPECT_EQ(work[7].part, StepPart::kBackward) << "by the time of its hand-over";
  EXPECT_EQ(work[9].node, &step.replicas[0].nodes[3]);
  EXPECT_EQ(work[10].part, StepPart::kUpdate);
  EXPECT_EQ(work[11].replica, -1) << "a span that is none of this step's";
}

// Decoding on the GPU by a thread of the input, and another replica on another GPU.
TEST(DeviceTime, TimeTellsOnlyOfStreamsThatTheReplicaUses) {
  StepRecord step = sample_step();
  ThreadRecord other;
  other.parts.push_back({StepPart::kBackward, at_us(50), at_us(90), 20});
  step.replicas.push_back(other);
  nn::DeviceActivity decode = kernel("decode", 0, 100, 200, 21), sum = kernel("add", 0, 100, 200);
  nn::DeviceActivity spanned = kernel("gemm", 20, 200, 300);
  decode.handed_over = sum.handed_over = at_us(75);
  sum.device = spanned.device = 1;
  step.device->activities = {decode, sum, spanned, kernel("gemm", 6, 330, 480)};
  const std::vector<DeviceWork> work = device_work(step);
  EXPECT_EQ(work[0].replica, -1);
  EXPECT_EQ(work[1].replica, 1);
  EXPECT_EQ(work[1].part, StepPart::kBackward);
  EXPECT_EQ(work[3].replica, 0);
  const std::vector<DeviceWork> first = first_replicas_work(step);
  ASSERT_EQ(first.size(), 2u) << "nothing of the other device";
  EXPECT_EQ(first[0].activity->name, "decode");
  EXPECT_NEAR(device_times(step).rest, 100e-6, 1e-12);
}

TEST(DeviceTime, CountsWhatOverlapsOnce) {
  const nn::DeviceActivity a = kernel("a", 0, 10, 30), b = kernel("b", 0, 20, 40), c = kernel("c", 0, 22, 25),
                           d = kernel("d", 0, 50, 60);
  EXPECT_NEAR(busy_seconds({&a, &b, &c, &d}), 40e-6, 1e-12);
  EXPECT_NEAR(busy_seconds({&d, &c, &b, &a}, at_us(25), at_us(55)), 20e-6, 1e-12);
  EXPECT_EQ(busy_seconds({&a}, at_us(40), at_us(50)), 0);
  EXPECT_EQ(busy_seconds({}), 0);
}

TEST(DeviceTime, AccountsForTheWholeStep) {
  const StepRecord step = sample_step();
  const DeviceTimes times = device_times(step);
  const std::vector<NodeRecord>& nodes = step.replicas[0].nodes;
  EXPECT_NEAR(times.nodes.at(&nodes[0]).seconds, 200e-6, 1e-12) << "ten of them overlap";
  EXPECT_NEAR(times.nodes.at(&nodes[3]).seconds, 200e-6, 1e-12);
  EXPECT_EQ(times.nodes.at(&nodes[3]).kernels, (std::vector<std::string>{"gemm", "norm_gradient"}));
  EXPECT_NEAR(times.between_layers, 30e-6, 1e-12);
  EXPECT_NEAR(times.loss, 30e-6, 1e-12);
  EXPECT_EQ(times.reduce, 0);
  EXPECT_NEAR(times.update, 100e-6, 1e-12);
  EXPECT_NEAR(times.rest, 50e-6, 1e-12);
  EXPECT_NEAR(times.idle, (1000 - 780 - 10) * 1e-6, 1e-12);
}

TEST(DeviceTrace, PrintsTablesOfItsTimes) {
  const std::vector<StepRecord> steps{sample_step(), sample_step()};
  const LayerReport report = layer_report(steps, tiny_graph(), "cuda", {.batch = 16});
  EXPECT_TRUE(core::matches_golden(layer_time_table(report) + "\n" + operator_time_table(report, 4),
                                   "trainyard/train/testdata/layer_report_device.txt"));
  const Json json = Json::parse(layer_time_json(report));
  EXPECT_EQ(json["device"], (Json{{"name", "fake"}, {"method", "counting"}, {"lost_records", 4}}));
  EXPECT_EQ(json["kernels"][0]["name"], "gemm");
  EXPECT_EQ(json["kernels"][0]["calls"], 8);
  EXPECT_NEAR(json["kernels"][0]["seconds"].get<double>(), 480e-6, 1e-12);
  EXPECT_NEAR(json["outside_seconds"]["idle"].get<double>(), 210e-6, 1e-12);
  EXPECT_FALSE(json["outside_seconds"].contains("input")) << "what the host waits for is not the device's time";
}

TEST(DeviceTrace, StartsAtTheWallClocksTimeOfTheFirstStep) {
  const std::vector<StepRecord> steps{sample_step()};
  const auto nanoseconds = [](auto duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  };
  const int64_t ago = nanoseconds(RecordClock::now() - steps.front().trainer.parts.back().begin);
  const int64_t now = nanoseconds(std::chrono::system_clock::now().time_since_epoch());
  EXPECT_NEAR(static_cast<double>(step_trace(steps, tiny_graph()).start_unix_ns - (now - ago)), 0, 10e9);
}

TEST(DeviceTrace, HasATrackAStreamAndFlowsFromTheHandOver) {
  const std::vector<StepRecord> steps{sample_step()};
  formats::Trace trace = step_trace(steps, tiny_graph());
  trace.start_unix_ns = 0;
  EXPECT_TRUE(core::matches_golden(Json::parse(chrome_trace(trace)).dump(1) + "\n",
                                   "trainyard/train/testdata/device_trace.json"));
  std::vector<std::string> tracks;
  for (const formats::TraceTrack& track : trace.tracks) {
    tracks.push_back(track.device + "/" + track.name);
    // On each track events are nested or apart, as viewers need it.
    int64_t end = 0;
    for (const formats::TraceEvent& event : track.events) {
      if (track.device.empty()) continue;
      EXPECT_GE(event.begin_ns, end) << event.name;
      end = event.begin_ns + event.duration_ns;
    }
  }
  EXPECT_EQ(tracks, (std::vector<std::string>{"/trainer", "/replica 0, handing over to the device", "GPU:0/stream:13",
                                              "GPU:0/stream:7", "GPU:0/stream:7#2", "GPU:0/stream:8"}));
  ASSERT_EQ(trace.flows.size(), 2u) << "of those whose hand-over has a time and an owner";
  EXPECT_NE(step_stats_text(trace).find("device:GPU:0/stream:7#2\""), std::string::npos);
}

// A device that has spans but no kernels: events between layers.
TEST(DeviceTrace, NamesSpansAfterTheirLayers) {
  StepRecord step = sample_step();
  nn::DeviceActivity layer = kernel("", 2, 60, 160), part = kernel("", 9, 160, 170);
  layer.kind = part.kind = Kind::kSpan;
  step.device->activities = {layer, part};
  const std::vector<StepRecord> steps{step};
  const formats::Trace trace = step_trace(steps, tiny_graph());
  ASSERT_EQ(trace.tracks[2].events.size(), 2u);
  EXPECT_EQ(trace.tracks[2].events[0].name, "conv + bn + relu");
  EXPECT_EQ(trace.tracks[2].events[1].name, "update");
  const LayerReport report = layer_report(steps, tiny_graph(), "cuda", {.batch = 16});
  EXPECT_TRUE(report.kernels.empty());
  EXPECT_EQ(report.rows[0].kernels, std::vector<std::string>{"what the executor calls it"});
}

// A kernel a span, which runs as the span ends.
class FakeTracer : public nn::DeviceTracer {
 public:
  std::string method() const override { return "pretending"; }
  uint64_t begin_span() override {
    open_.push_back(nn::next_span());
    return open_.back();
  }
  void end_span() noexcept override {
    ASSERT_FALSE(open_.empty());
    const auto begin = nn::TraceClock::now();
    ran_.push_back({.name = "k", .begin = begin, .end = begin + std::chrono::nanoseconds(1), .span = open_.back()});
    open_.pop_back();
  }
  nn::DeviceRecords collect() override {
    EXPECT_TRUE(open_.empty()) << "a step leaves no span open";
    return {.activities = std::exchange(ran_, {}), .lost = 0};
  }

 private:
  std::vector<uint64_t> open_;
  std::vector<nn::DeviceActivity> ran_;
};

class TracedAccelerator : public FakeAccelerator {
 public:
  void wait() override { ++waits; }
  bool idle() override { return dry; }
  std::unique_ptr<nn::DeviceTracer> trace() override {
    ++traces;
    return std::make_unique<FakeTracer>();
  }

  int waits = 0, traces = 0;
  bool dry = false;
};

TEST(DeviceTrace, ATrainersStepsMakeSpansOfPartsAndLayers) {
  TowerTrainerOptions options = tiny_options();
  options.devices.executor = "reference";
  const auto accelerator = std::make_shared<TracedAccelerator>();
  options.devices.accelerators = {accelerator};
  TowerTrainer trainer(options, tiny_source(64, 8));
  int recordings = 0;
  trainer.add(std::make_shared<RecordingCallback>(RecordingOptions{
      .accelerator = accelerator,
      .record = [&](StepRecorder* recorder) { trainer.record(recorder); },
      .recordings = {{2, 2, [&](std::span<const StepRecord> steps) {
                        ++recordings;
                        ASSERT_EQ(steps.size(), 2u);
                        for (const StepRecord& step : steps) {
                          ASSERT_TRUE(step.device);
                          EXPECT_EQ(step.device->method, "pretending");
                          const ThreadRecord& replica = step.replicas[0];
                          EXPECT_EQ(step.device->activities.size(), replica.parts.size() + replica.nodes.size());
                          for (const DeviceWork& work : device_work(step)) EXPECT_EQ(work.replica, 0);
                        }
                        const LayerReport report = layer_report(steps, options.graph, "reference", {.batch = 8});
                        EXPECT_EQ(report.device, "fake");
                        EXPECT_EQ(report.kernels.size(), 1u);
                      }}}}));
  trainer.train({.steps_per_epoch = 6});
  EXPECT_EQ(recordings, 1);
  EXPECT_EQ(accelerator->traces, 1) << "none before it is wanted, and one for all";
  EXPECT_EQ(accelerator->waits, 2) << "the steps that are recorded";
}

// What the thread that hands over cannot know is not told: only a wait through which the device ran dry is input's.
TEST(DeviceTrace, TimesOfAStepAreNotThoseOfTheHandOver) {
  for (const bool dry : {false, true}) {
    TowerTrainerOptions options = tiny_options();
    const auto accelerator = std::make_shared<TracedAccelerator>();
    accelerator->dry = dry;
    options.devices.accelerators = {accelerator};
    TowerTrainer trainer(options, tiny_source(64, 8));
    struct Times : Callback {
      std::string name() const override { return "times"; }
      void after_step(Trainer&, const StepView& view) override { last = view.times; }
      StepTimes last;
    };
    const auto times = std::make_shared<Times>();
    trainer.add(times);
    trainer.train({.steps_per_epoch = 2});
    EXPECT_TRUE(times->last.on_accelerator);
    EXPECT_EQ(times->last.update, 0);
    EXPECT_EQ(times->last.communication, 0);
    EXPECT_EQ(times->last.input > 0, dry);
    EXPECT_EQ(times->last.compute, times->last.total - times->last.input);
  }
}

}  // namespace
}  // namespace trainyard::train::device_trace_test
