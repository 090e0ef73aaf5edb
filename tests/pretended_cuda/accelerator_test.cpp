// CudaAccelerator on the pretended GPU: order, captures, memory.
#include "trainyard/nn/execution/accelerator.h"

#include <thread>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

namespace trainyard::nn {
namespace {

const at::Device kGpu(at::kCUDA, 0);

// Bytes, from pinned memory to pinned memory: what a stream has not come to has not happened.
at::Tensor pinned(int value) {
  return at::full({1 << 10}, value, at::TensorOptions(at::kByte).pinned_memory(true));
}
int first(const at::Tensor& host) {
  return host.const_data_ptr<uint8_t>()[0];
}
at::Tensor on_gpu(int64_t bytes = 1 << 10) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(kGpu));
}

std::string problem(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

TEST(Accelerator, OwnStreamWhileItIsUsed) {
  const auto gpu = open_accelerator("cuda", {});
  EXPECT_EQ(gpu->name(), "Pretended GPU");
  EXPECT_EQ(c10::cuda::getCurrentCUDAStream(), c10::cuda::getDefaultCUDAStream());
  const auto using_it = gpu->use();
  const c10::cuda::CUDAStream own = c10::cuda::getCurrentCUDAStream();
  EXPECT_NE(own, c10::cuda::getDefaultCUDAStream());
  std::thread([&] {
    EXPECT_EQ(c10::cuda::getCurrentCUDAStream(), c10::cuda::getDefaultCUDAStream());
    const auto there_too = gpu->use();
    EXPECT_EQ(c10::cuda::getCurrentCUDAStream(), own);
  }).join();
}

TEST(Accelerator, WaitWaitsForWorkOfAllThreads) {
  const auto gpu = open_accelerator("cuda", {});
  const at::Tensor sent = pinned(5), back = pinned(0);
  std::thread([&] {
    const auto using_it = gpu->use();
    const at::Tensor there = on_gpu();
    there.copy_(sent, /*non_blocking=*/true);
    back.copy_(there, /*non_blocking=*/true);
  }).join();
  EXPECT_EQ(first(back), 0);
  gpu->wait();
  EXPECT_EQ(first(back), 5);
}

TEST(Accelerator, CopiesTravelBesideTheWorkThatIsNotHeldBack) {
  const auto gpu = open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const at::Tensor there = on_gpu(), back = pinned(0);
  there.zero_();
  const auto ready = gpu->make_mark(), arrived = gpu->make_mark();
  ready->set(Lane::kCompute);
  ready->hold_back(Lane::kCopy);
  gpu->send(pinned(9), there);  // the host lets go of it at once
  arrived->set(Lane::kCopy);
  back.copy_(there, /*non_blocking=*/true);
  gpu->wait();
  EXPECT_EQ(first(back), 0);
  for (int i = 0; i < 3; ++i) pinned(7);  // elsewhere
  arrived->hold_back(Lane::kCompute);
  back.copy_(there, /*non_blocking=*/true);
  gpu->wait();
  EXPECT_EQ(first(back), 9);
}

TEST(Accelerator, StaysTwoStepsAheadAtMost) {
  const auto gpu = open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const at::Tensor there = on_gpu();
  std::vector<at::Tensor> back;
  for (int step = 0; step < 5; ++step) {
    back.push_back(pinned(0));
    there.fill_(1);
    const at::Tensor sent = pinned(step + 1);
    there.copy_(sent, /*non_blocking=*/true);
    back.back().copy_(there, /*non_blocking=*/true);
    gpu->end_step();
    for (int earlier = 0; earlier <= step; ++earlier) {
      EXPECT_EQ(first(back[static_cast<size_t>(earlier)]), earlier <= step - 2 ? earlier + 1 : 0)
          << step << " " << earlier;
    }
  }
  gpu->wait();
}

// Copies through memory that work makes: what the allocator gives in a capture stays in place.
void check_replays(Accelerator& gpu) {
  const at::Tensor sent = pinned(3), back = pinned(0);
  const auto using_it = gpu.use();
  const auto recorded = gpu.record([&] {
    const at::Tensor there = on_gpu(3 << 20);
    const at::Tensor part = there.narrow(0, 1 << 20, 1 << 10);
    part.copy_(sent, /*non_blocking=*/true);
    back.copy_(part, /*non_blocking=*/true);
  });
  gpu.wait();
  EXPECT_EQ(first(back), 0);
  for (const int value : {7, 8}) {
    sent.fill_(value);
    recorded->replay();
    gpu.wait();
    EXPECT_EQ(first(back), value);
  }
}

TEST(Accelerator, ReplaysWhatWasRecorded) {
  const auto gpu = open_accelerator("cuda", {});
  check_replays(*gpu);
}

// Beside a stream that captures nothing, and memory that can be had and is given back.
void check_usable(Accelerator& gpu) {
  const auto using_it = gpu.use();
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  const int64_t before = gpu.memory().used;
  {
    const at::Tensor small = on_gpu(), large = on_gpu(40 << 20);
    EXPECT_EQ(large.fill_(0).sum().item<int64_t>(), 0);
    EXPECT_NO_THROW(on_gpu(4 << 10).view(at::kFloat).normal_());  // its generator knows of captures
    EXPECT_GE(gpu.memory().used, before + (40 << 20));
  }
  EXPECT_EQ(gpu.memory().used, before);
  const int64_t pinned_before = pretended_cuda_count("cudaHostAlloc");
  { pinned(1); }
  { pinned(1); }
  EXPECT_LE(pretended_cuda_count("cudaHostAlloc"), pinned_before + 1);
  check_replays(gpu);
}

TEST(Accelerator, IsUsableAfterARecordingThatThrew) {
  const auto gpu = open_accelerator("cuda", {});
  at::Tensor kept;
  const auto throws = [&] {
    kept = on_gpu(30 << 20);
    const at::Tensor host = pinned(1);
    kept.narrow(0, 0, 1 << 10).copy_(host, /*non_blocking=*/true);
    throw std::runtime_error("in the middle");
  };
  EXPECT_EQ(problem([&] { gpu->record(throws); }), "in the middle");
  check_usable(*gpu);
  kept.reset();  // of a pool that has gone
  check_usable(*gpu);
}

TEST(Accelerator, IsUsableAfterARecordingThatWaited) {
  const auto gpu = open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const at::Tensor there = at::zeros({4}, at::TensorOptions(at::kFloat).device(kGpu));
  const std::vector<std::pair<std::string, std::function<void()>>> works = {
      {"a number", [&] { there.sum().item<float>(); }},
      {"the stream", [&] { gpu->wait(); }},
      {"pageable memory", [&] { there.copy_(at::zeros({4}), /*non_blocking=*/true); }},
      {"and goes on",
       [&] {
         problem([&] { gpu->wait(); });
         on_gpu(30 << 20).fill_(1);
       }},
      {"and goes on without an error", [&] { problem([&] { gpu->wait(); }); }}};
  for (const auto& [name, work] : works) {
    SCOPED_TRACE(name);
    EXPECT_NE(problem([&] { gpu->record(work); }), "none");
    check_usable(*gpu);
  }
  // Nor does what they took stay behind.
  c10::cuda::CUDACachingAllocator::emptyCache();
  EXPECT_LT(gpu->memory().held, 30 << 20);
}

TEST(Accelerator, ARecordingDoesNotHoldEarlierMemoryBesideItsOwn) {
  const auto gpu = open_accelerator("cuda", {});
  const auto using_it = gpu->use();
  const auto work = [] { on_gpu(1200 << 20).zero_(); };
  work();
  EXPECT_GE(gpu->memory().held, 1200 << 20);
  const auto recorded = gpu->record(work);
  EXPECT_LT(gpu->memory().held, 1300 << 20);
}

TEST(Accelerator, MemoryIsWhatTheDeviceAndTheAllocatorSay) {
  const auto gpu = open_accelerator("cuda", {});
  const DeviceMemory before = gpu->memory();
  EXPECT_EQ(before.total, int64_t{2} << 30);
  EXPECT_EQ(before.limit, before.total);
  EXPECT_EQ(before.free, before.total - before.held);
  const at::Tensor large = on_gpu(100 << 20);
  const DeviceMemory after = gpu->memory();
  EXPECT_EQ(after.used, before.used + (100 << 20));
  EXPECT_EQ(after.held, before.held + (100 << 20));
  EXPECT_EQ(after.free, before.free - (100 << 20));
}

TEST(Accelerator, ARefusalSaysWhatWasAsked) {
  const auto gpu = open_accelerator("cuda", {});
  EXPECT_EQ(gpu->refused().asked, 0);
  const auto work = [] {
    const at::Tensor before = on_gpu(64 << 20);
    on_gpu(int64_t{3} << 30);
  };
  const int64_t used = gpu->memory().used + (64 << 20);
  EXPECT_THROW(work(), c10::OutOfMemoryError);
  EXPECT_EQ(gpu->refused().asked, int64_t{3} << 30);
  EXPECT_EQ(gpu->refused().used, used);
  check_usable(*gpu);
}

TEST(Accelerator, TakesTheFractionThatItMay) {
  const auto gpu = open_accelerator("cuda", {.memory_fraction = 0.25});
  EXPECT_EQ(gpu->memory().limit, int64_t{1} << 29);
  EXPECT_THROW(on_gpu(600 << 20), c10::OutOfMemoryError);
  EXPECT_NO_THROW(on_gpu(400 << 20));
  open_accelerator("cuda", {.memory_fraction = 1});  // the allocator is the process's
  EXPECT_NO_THROW(on_gpu(600 << 20));
}

TEST(Accelerator, TakesAllMemoryAtOnce) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  const int64_t free = open_accelerator("cuda", {})->memory().free;
  const auto gpu = open_accelerator("cuda", {.take_all_memory = true});
  const DeviceMemory memory = gpu->memory();
  EXPECT_NEAR(static_cast<double>(memory.free), 1 << 30, 2 << 20);
  EXPECT_GE(memory.held, free - (int64_t{1} << 30));
  const auto using_it = gpu->use();
  const int64_t calls = pretended_cuda_count("cudaMalloc");
  const at::Tensor large = on_gpu(700 << 20), other = on_gpu(100 << 20);
  EXPECT_EQ(pretended_cuda_count("cudaMalloc"), calls);
}

// A part that is no multiple of what the allocator takes at a time.
TEST(Accelerator, TakesAllOfAnOddPartAtOnce) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto gpu = open_accelerator("cuda", {.memory_fraction = 0.2001, .take_all_memory = true});
  const DeviceMemory memory = gpu->memory();
  EXPECT_LE(memory.held, memory.limit);
  EXPECT_GT(memory.held, memory.limit - (4 << 20));
  c10::cuda::CUDACachingAllocator::emptyCache();
  open_accelerator("cuda", {.memory_fraction = 1});  // the allocator is the process's
}

// The last: what the allocator counts of it stays counted.
TEST(Accelerator, UnifiedMemoryIsMoreThanTheDeviceHas) {
  at::Tensor kept;
  {
    const auto gpu = open_accelerator("cuda", {.memory_fraction = 1.5, .managed_memory = true});
    EXPECT_EQ(gpu->memory().limit, int64_t{3} << 30);
    const int64_t managed = pretended_cuda_count("cudaMallocManaged");
    const at::Tensor more = on_gpu(int64_t{2500} << 20);
    EXPECT_EQ(pretended_cuda_count("cudaMallocManaged"), managed + 1);
    EXPECT_EQ(gpu->memory().free, (int64_t{3} << 30) - (int64_t{2500} << 20));
    EXPECT_THROW(on_gpu(1 << 30), c10::OutOfMemoryError);
    EXPECT_EQ(gpu->refused().asked, 1 << 30);
    EXPECT_NE(problem([&] { gpu->record([] {}); }), "none");
    kept = on_gpu(30 << 20);
  }
  const auto gpu = open_accelerator("cuda", {});
  kept.reset();
  check_usable(*gpu);
}

}  // namespace
}  // namespace trainyard::nn
