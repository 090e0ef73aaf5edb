// The CPU plan in the conformance suite.

#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn {

INSTANTIATE_TEST_SUITE_P(Cpu, LayerConformance, ::testing::ValuesIn(conformance_cases({.name = "cpu"})),
                         conformance_name);

}  // namespace trainyard::nn
