// Traces of the pretended GPU: what CUPTI's records become, and events where CUPTI may not be used.
#include <cstdlib>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/profile/device_time.h"
#include "trainyard/train/profile/layer_report.h"
#include "trainyard/train/profile/step_trace.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train {
namespace {

using Kind = nn::DeviceActivity::Kind;
using testing::HasSubstr;

at::Tensor on_gpu(int64_t bytes = 1 << 10) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(at::kCUDA));
}

TEST(Trace, TellsWhatRanForWhichSpan) {
  const auto gpu = nn::open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const at::Tensor host = at::full({1 << 10}, 1, at::TensorOptions(at::kByte).pinned_memory(true));
  on_gpu().fill_(1);  // before the trace
  const auto tracer = gpu->trace();
  EXPECT_EQ(tracer->method(), "CUPTI");
  const at::Tensor there = on_gpu();
  const auto before = nn::TraceClock::now();
  const uint64_t outer = tracer->begin_span();
  there.copy_(host, /*non_blocking=*/true);
  const uint64_t inner = tracer->begin_span();
  there.fill_(3);
  tracer->end_span();
  cudaMemsetAsync(there.mutable_data_ptr(), 0, 1 << 10, c10::cuda::getCurrentCUDAStream());
  tracer->end_span();
  there.fill_(4);
  const nn::DeviceRecords records = tracer->collect();
  ASSERT_EQ(records.activities.size(), 4u);
  EXPECT_EQ(records.lost, 0);
  const auto is = [&](size_t i, Kind kind, uint64_t span) {
    const nn::DeviceActivity& activity = records.activities[i];
    EXPECT_EQ(activity.kind, kind) << i;
    EXPECT_EQ(activity.span, span) << i;
    ASSERT_TRUE(activity.handed_over) << i;
    EXPECT_GE(*activity.handed_over, before) << i;
    EXPECT_GE(activity.begin, *activity.handed_over) << i;
    EXPECT_GT(activity.end, activity.begin) << i;
    EXPECT_EQ(activity.stream, records.activities[0].stream) << i;
  };
  is(0, Kind::kCopy, outer);
  is(1, Kind::kKernel, inner);
  is(2, Kind::kFill, outer);
  is(3, Kind::kKernel, 0);
  EXPECT_EQ(records.activities[0].name, "copy pinned to device");
  EXPECT_EQ(records.activities[0].bytes, 1 << 10);
  EXPECT_THAT(records.activities[1].name, HasSubstr("elementwise_kernel<"));
  EXPECT_TRUE(tracer->collect().activities.empty());
}

TEST(Trace, OneAtATimeAndAnotherBehindIt) {
  const auto gpu = nn::open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  for (int trace = 0; trace < 2; ++trace) {
    const auto tracer = gpu->trace();
    EXPECT_EQ(tracer->method(), "CUPTI");
    EXPECT_THAT(gpu->trace()->method(), HasSubstr("events")) << "CUPTI has one client";
    on_gpu().fill_(1);
    EXPECT_EQ(tracer->collect().activities.size(), 1u);
  }
}

// A buffer with room for one kernel's record, or for few of the small ones: all arrive.
TEST(Trace, ArrivesInManyBuffers) {
  const core::EnvironmentVariable small("PRETENDED_CUPTI_BUFFER_BYTES", "300");
  const auto gpu = nn::open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const auto tracer = gpu->trace();
  const at::Tensor there = on_gpu();
  std::vector<uint64_t> spans;
  for (int i = 0; i < 300; ++i) {
    spans.push_back(tracer->begin_span());
    there.fill_(i % 100);
    tracer->end_span();
  }
  const nn::DeviceRecords records = tracer->collect();
  ASSERT_EQ(records.activities.size(), spans.size());
  for (size_t i = 0; i < spans.size(); ++i) EXPECT_EQ(records.activities[i].span, spans[i]);
  EXPECT_EQ(records.lost, 0);
}

TEST(Trace, TimesSpansByEventsWhereCuptiMayNotBeUsed) {
  const core::EnvironmentVariable refuses("PRETENDED_CUPTI_REFUSES", "1");
  const auto gpu = nn::open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const auto tracer = gpu->trace();
  EXPECT_THAT(tracer->method(), HasSubstr("events"));
  for (int step = 0; step < 3; ++step) {  // the events of which are used again
    const at::Tensor there = on_gpu();
    const uint64_t outer = tracer->begin_span();
    there.fill_(3);
    const uint64_t inner = tracer->begin_span();
    there.fill_(4);
    there.fill_(5);
    tracer->end_span();
    tracer->end_span();
    there.fill_(6);
    const nn::DeviceRecords records = tracer->collect();
    ASSERT_EQ(records.activities.size(), 3u);
    const uint64_t expected[] = {outer, inner, outer};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(records.activities[i].kind, Kind::kSpan);
      EXPECT_EQ(records.activities[i].span, expected[i]);
      if (i > 0) {
        EXPECT_EQ(records.activities[i].begin, records.activities[i - 1].end);
      }
    }
    // The pretended clock goes on by one with each piece of work and each event.
    const auto length = [&](size_t i) { return records.activities[i].end - records.activities[i].begin; };
    EXPECT_GT(length(1), length(0));
    EXPECT_GT(length(0), length(2));
  }
}

TowerTrainerOptions gpu_options(const std::shared_ptr<nn::Accelerator>& gpu) {
  TowerTrainerOptions options = tiny_options();
  options.devices.accelerators = {gpu};
  options.devices.executor = "cuda";
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("tf_nesterov")(set, {}); };
  return options;
}

StepRecord recorded_step(const std::shared_ptr<nn::Accelerator>& gpu, const TowerTrainerOptions& options) {
  TowerTrainer trainer(options, tiny_source(64, 8));
  std::vector<StepRecord> recorded;
  trainer.add(std::make_shared<RecordingCallback>(
      RecordingOptions{.accelerator = gpu,
                       .record = [&](StepRecorder* recorder) { trainer.record(recorder); },
                       .recordings = {{2, 1, [&](std::span<const StepRecord> steps) {
                                         recorded = {steps.begin(), steps.end()};
                                       }}}}));
  trainer.train({.steps_per_epoch = 4});
  return recorded.at(0);
}

// Backward runs on autograd's thread: its spans must be that thread's.
TEST(Trace, GivesEachLayerOfATrainingItsWork) {
  const auto gpu = nn::open_accelerator("cuda", {});
  const TowerTrainerOptions options = gpu_options(gpu);
  const StepRecord step = recorded_step(gpu, options);
  ASSERT_TRUE(step.device);
  EXPECT_EQ(step.device->name, "Pretended GPU");
  int outside = 0;  // of all parts: the step's state is written, the reported loss is averaged
  std::map<StepPart, int> parts;
  std::map<std::pair<int, nn::NodeRun::Phase>, int> nodes;
  for (const DeviceWork& work : device_work(step)) {
    if (work.part) ++parts[*work.part];
    if (work.node != nullptr) ++nodes[{work.node->nodes.front(), work.node->phase}];
    if (!work.part && work.activity->kind == Kind::kKernel) ++outside;
  }
  EXPECT_LE(outside, 2);
  for (const nn::NodeRun::Phase phase : {nn::NodeRun::Phase::kForward, nn::NodeRun::Phase::kBackward}) {
    for (const int head : {1, 2, 4, 5}) EXPECT_GT((nodes[{head, phase}]), 0) << head;  // 3 runs with 2
  }
  for (const StepPart part : {StepPart::kForward, StepPart::kLoss, StepPart::kBackward, StepPart::kUpdate}) {
    EXPECT_GT(parts[part], 0) << part_name(part);
  }
  const std::vector<StepRecord> steps{step};
  const LayerReport report = layer_report(steps, options.graph, "cuda", {.batch = 8});
  EXPECT_EQ(report.method, "CUPTI");
  EXPECT_FALSE(report.kernels.empty());
  EXPECT_GT(step_trace(steps, options.graph).flows.size(), 10u);
}

TEST(Trace, TimesEachLayerByEventsToo) {
  const core::EnvironmentVariable refuses("PRETENDED_CUPTI_REFUSES", "1");
  const auto gpu = nn::open_accelerator("cuda", {});
  const StepRecord step = recorded_step(gpu, gpu_options(gpu));
  ASSERT_TRUE(step.device);
  const DeviceTimes times = device_times(step);
  for (const NodeRecord& node : step.replicas[0].nodes) EXPECT_GT(times.nodes.at(&node).seconds, 0) << node.kernel;
}

}  // namespace
}  // namespace trainyard::train
