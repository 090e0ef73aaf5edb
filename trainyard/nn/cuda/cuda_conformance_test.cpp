// The CUDA executor in the conformance suite.

#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::cuda_conformance_test {

INSTANTIATE_TEST_SUITE_P(Cuda, LayerConformance,
                         ::testing::ValuesIn(conformance_cases({.name = "cuda",
                                                                .dtypes = {at::kFloat, at::kHalf, at::kBFloat16},
                                                                .device = at::Device(at::kCUDA, 0)})),
                         conformance_name);

}  // namespace trainyard::nn::cuda_conformance_test
