// The reference executor in the conformance suite.

#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::conformance_test {

INSTANTIATE_TEST_SUITE_P(Reference, LayerConformance, ::testing::ValuesIn(conformance_cases({.name = "reference"})),
                         conformance_name);

}  // namespace trainyard::nn::conformance_test
