// The CUDA executor with its kernels run on the CPU (tests/cuda_emulation): all that a GPU would compute, in the same
// order, but for cuDNN's and cuBLAS's part, which is ATen's on the CPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cuda/cross_entropy.h"
#include "trainyard/nn/reference/conformance_suite.h"

namespace trainyard::nn {
namespace {

std::vector<ConformanceCase> cases() {
  return conformance_cases({.name = "cuda_emulation", .dtypes = {at::kFloat, at::kHalf, at::kBFloat16}});
}

TEST(CudaEmulation, CrossEntropyIsAtens) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const int64_t classes : {2, 10, 255, 256, 257, 1000}) {
      const at::Tensor labels = at::randint(classes, {7}, at::kLong);
      at::Tensor own = at::randn({7, classes}).mul_(5), other = own.clone();
      own.requires_grad_(true);
      other.requires_grad_(true);
      const at::Tensor loss = cuda::softmax_cross_entropy(own, labels, smoothing);
      const at::Tensor expected = at::cross_entropy_loss(other, labels, {}, 1, -100, smoothing);
      (loss * 3).backward();
      (expected * 3).backward();
      EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6 * expected.item<double>());
      EXPECT_LE((own.grad() - other.grad()).norm().item<double>(), 1e-6 * other.grad().norm().item<double>());
    }
  }
  const at::Tensor logits = at::randn({3, 10});
  at::Tensor labels = at::randint(10, {3}, at::kLong);
  for (const int64_t no_class : {-1, 10}) {
    labels[1] = no_class;
    EXPECT_TRUE(cuda::softmax_cross_entropy(logits, labels, 0).isnan().item<bool>());
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(CudaEmulation, LayerConformance, ::testing::ValuesIn(cases()), conformance_name);

}  // namespace trainyard::nn
