#include "trainyard/nn/cuda/managed_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/testing/gpu.h"

namespace trainyard::nn::managed_memory_test {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

bool is_managed(const at::Tensor& tensor) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, tensor.data_ptr()) == cudaSuccess &&
         attributes.type == cudaMemoryTypeManaged;
}

TEST(CudaManagedMemory, HoldsTensorsWithinItsBudgetAndEnds) {
  TRAINYARD_NEEDS_GPU();
  constexpr int64_t kBudget = int64_t{256} << 20;
  at::Tensor outlives;
  {
    cuda::ManagedMemory memory(0, kBudget);
    const int64_t taken_before = memory.free_bytes();
    outlives = at::ones({int64_t{32} << 20}, at::TensorOptions(kGpu).dtype(at::kFloat));
    EXPECT_TRUE(is_managed(outlives));
    EXPECT_EQ(outlives.sum().item<float>(), static_cast<float>(int64_t{32} << 20));
    EXPECT_LE(memory.free_bytes(), taken_before - (int64_t{128} << 20));
    EXPECT_THROW(at::empty({kBudget}, at::TensorOptions(kGpu).dtype(at::kByte)), c10::OutOfMemoryError);
    EXPECT_NO_THROW(at::empty({int64_t{64} << 20}, at::TensorOptions(kGpu).dtype(at::kByte)));
  }
  EXPECT_FALSE(is_managed(at::empty({64}, at::TensorOptions(kGpu))));
  EXPECT_EQ(outlives[5].item<float>(), 1);
}

TEST(CudaManagedMemory, MoreThanGpuAndHostHaveIsRefused) {
  TRAINYARD_NEEDS_GPU();
  EXPECT_THROW(cuda::ManagedMemory(0, int64_t{1} << 60), core::Error);
}

TEST(CudaManagedMemory, AnAcceleratorInItCapturesNoStep) {
  TRAINYARD_NEEDS_GPU();
  const auto accelerator = open_accelerator("cuda", {.memory_fraction = 0.01, .managed_memory = true});
  const auto using_it = accelerator->use();
  const at::Tensor x = at::ones({8}, at::TensorOptions(kGpu));
  EXPECT_TRUE(is_managed(x));
  EXPECT_LE(accelerator->memory().held + accelerator->memory().free, accelerator->memory().total);
  EXPECT_THROW(accelerator->record([&] { x.add_(1); }), core::Error);
  EXPECT_EQ(x[0].item<float>(), 1);
}

}  // namespace
}  // namespace trainyard::nn::managed_memory_test
