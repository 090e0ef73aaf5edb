// The CPU plan in the conformance suite, with and without layers that run as one.

#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::cpu_conformance_test {

INSTANTIATE_TEST_SUITE_P(Cpu, LayerConformance, ::testing::ValuesIn(conformance_cases({.name = "cpu"})),
                         conformance_name);

INSTANTIATE_TEST_SUITE_P(
    CpuUnfused, LayerConformance,
    ::testing::ValuesIn(conformance_cases({.name = "cpu", .kernels = {.fusions = Fusions::none()}})), conformance_name);

}  // namespace trainyard::nn::cpu_conformance_test
