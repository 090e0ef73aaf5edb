// CUPTI's records as activities, from records made by hand: no GPU is needed. And what a tracer says where there is
// none.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cuda/cupti_reader.h"
#include "trainyard/nn/cuda/tracers.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/testing/gpu.h"

namespace trainyard::nn::cuda::cupti_test {
namespace {

TraceClock::time_point at_ns(int64_t nanoseconds) {
  return TraceClock::time_point(std::chrono::nanoseconds(nanoseconds));
}

template <typename Record>
void add(CuptiReader& reader, const Record& record) {
  reader.add(reinterpret_cast<const CUpti_Activity&>(record));
}

CUpti_ActivityKernel10 kernel_record(const char* name, uint32_t call, uint64_t start, uint64_t end) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.name = name;
  kernel.correlationId = call;
  kernel.start = start;
  kernel.end = end;
  kernel.deviceId = 1;
  kernel.streamId = 7;
  return kernel;
}

CUpti_ActivityExternalCorrelation span_record(CUpti_ExternalCorrelationKind kind, uint64_t span, uint32_t call) {
  CUpti_ActivityExternalCorrelation record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = kind;
  record.externalId = span;
  record.correlationId = call;
  return record;
}

TEST(CudaCupti, ReadsKernels) {
  CuptiReader reader(100);
  CUpti_ActivityKernel10 kernel = kernel_record("_ZN1a1b6kernelIfEEvPT_", 5, 2000, 3500);
  kernel.gridX = 3, kernel.gridY = 2, kernel.gridZ = 1;
  kernel.blockX = 256, kernel.blockY = 1, kernel.blockZ = 4;
  kernel.registersPerThread = 40;
  kernel.staticSharedMemory = 1000, kernel.dynamicSharedMemory = 24;
  add(reader, kernel);
  add(reader, span_record(kSpanKind, 99, 5));
  add(reader, span_record(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 1, 5));  // another client's
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.correlationId = 5;
  call.start = 1000;
  call.end = 1100;
  add(reader, call);
  const DeviceRecords records = reader.join.take();
  ASSERT_EQ(records.activities.size(), 1u);
  const DeviceActivity& activity = records.activities[0];
  EXPECT_EQ(activity.kind, DeviceActivity::Kind::kKernel);
  EXPECT_EQ(activity.name, "kernel<float>");
  EXPECT_EQ(activity.device, 1);
  EXPECT_EQ(activity.stream, 7);
  EXPECT_EQ(activity.begin, at_ns(2000));
  EXPECT_EQ(activity.end, at_ns(3500));
  EXPECT_EQ(activity.span, 99u);
  EXPECT_EQ(activity.handed_over, at_ns(1000));
  EXPECT_EQ(activity.grid, (std::array<int64_t, 3>{3, 2, 1}));
  EXPECT_EQ(activity.block, (std::array<int64_t, 3>{256, 1, 4}));
  EXPECT_EQ(activity.registers, 40);
  EXPECT_EQ(activity.shared_bytes, 1024);
}

TEST(CudaCupti, ReadsCopiesAndFills) {
  CuptiReader reader(100);
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = uint64_t{5} << 32;
  copy.start = 10, copy.end = 20;
  copy.streamId = 13;
  add(reader, copy);
  CUpti_ActivityMemcpyPtoP4 peers{};
  peers.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peers.srcDeviceId = 0, peers.dstDeviceId = 2;
  peers.bytes = 64;
  peers.start = 20, peers.end = 30;
  add(reader, peers);
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.bytes = 4096;
  fill.start = 30, fill.end = 31;
  add(reader, fill);
  const DeviceRecords records = reader.join.take();
  ASSERT_EQ(records.activities.size(), 3u);
  EXPECT_EQ(records.activities[0].name, "copy pinned to device");
  EXPECT_EQ(records.activities[0].kind, DeviceActivity::Kind::kCopy);
  EXPECT_EQ(records.activities[0].bytes, int64_t{5} << 32);
  EXPECT_EQ(records.activities[0].stream, 13);
  EXPECT_EQ(records.activities[1].name, "copy device 0 to device 2");
  EXPECT_EQ(records.activities[1].bytes, 64);
  EXPECT_EQ(records.activities[2].kind, DeviceActivity::Kind::kFill);
  EXPECT_EQ(records.activities[2].bytes, 4096);
}

TEST(CudaCupti, CountsWhatHasNoTimesAndPassesOverTheRest) {
  CuptiReader reader(100);
  add(reader, kernel_record(nullptr, 1, 5, 6));
  add(reader, kernel_record("_Zbroken", 1, 0, 0));
  CUpti_ActivityOverhead3 overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  add(reader, overhead);
  const DeviceRecords records = reader.join.take();
  ASSERT_EQ(records.activities.size(), 1u);
  EXPECT_EQ(records.activities[0].name, "kernel without a name");
  EXPECT_EQ(records.lost, 1);
}

// On a machine without a GPU it cannot start, says why, and may be asked again; with one it starts, once at a time.
TEST(CudaCupti, StartsOrSaysWhyNot) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      const auto tracer = open_cupti_tracer();
      EXPECT_GT(accelerator_count("cuda"), 0);
      EXPECT_EQ(tracer->method(), "CUPTI");
      EXPECT_THROW(open_cupti_tracer(), core::Error);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("CUPTI cannot trace the GPU"), std::string::npos) << error.what();
      RecordProperty("why", error.what());
    }
  }
}

// On the GPU itself: what tests/pretended_cuda checks of the tracers without one, and the clocks.
void check_spans(Accelerator& gpu, DeviceTracer& tracer) {
  const auto using_it = gpu.use();
  const at::Tensor there = at::zeros({1 << 24}, at::TensorOptions(at::kFloat).device(gpu.device()));
  gpu.wait();
  tracer.collect();
  const auto before = TraceClock::now();
  const uint64_t outer = tracer.begin_span();
  there.add_(1);
  const uint64_t inner = tracer.begin_span();
  there.mul_(2);
  tracer.end_span();
  tracer.end_span();
  const DeviceRecords records = tracer.collect();
  const auto after = TraceClock::now();
  EXPECT_EQ(records.lost, 0);
  std::vector<uint64_t> spans;
  constexpr std::chrono::microseconds kClocks{200};  // how far they may be apart
  for (const DeviceActivity& activity : records.activities) {
    if (spans.empty() || spans.back() != activity.span) spans.push_back(activity.span);
    EXPECT_GE(activity.begin, before - kClocks) << activity.name;
    EXPECT_LE(activity.end, after + kClocks) << activity.name;
    ASSERT_TRUE(activity.handed_over) << activity.name;
    EXPECT_GE(activity.begin, *activity.handed_over - kClocks) << activity.name;
  }
  spans.resize(2);  // events have a third stretch, between the ends of both
  EXPECT_EQ(spans, (std::vector<uint64_t>{outer, inner}));
}

TEST(CudaTrace, KernelsOfSpans) {
  TRAINYARD_NEEDS_GPU();
  const auto gpu = open_accelerator("cuda", {});
  const auto tracer = gpu->trace();
  ASSERT_EQ(tracer->method(), "CUPTI") << "the log says why not";
  check_spans(*gpu, *tracer);
}

TEST(CudaTrace, EventsOfSpans) {
  TRAINYARD_NEEDS_GPU();
  const auto gpu = open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  check_spans(*gpu, *open_event_tracer(c10::cuda::getCurrentCUDAStream()));
}

}  // namespace
}  // namespace trainyard::nn::cuda::cupti_test
