// The CUDA executor in the conformance suite. Bits that repeat need cuDNN's deterministic algorithms.

#include <ATen/Context.h>

#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::cuda_conformance_test {
namespace {

std::vector<ConformanceCase> cases() {
  at::globalContext().setDeterministicCuDNN(true);
  return conformance_cases(
      {.name = "cuda", .dtypes = {at::kFloat, at::kHalf, at::kBFloat16}, .device = at::Device(at::kCUDA, 0)});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Cuda, LayerConformance, ::testing::ValuesIn(cases()), conformance_name);

}  // namespace trainyard::nn::cuda_conformance_test
