// The largest of several differences, for tests only.
//
//   double worst = 0;
//   for (size_t i = 0; i < actual.size(); ++i) core::take_worst(worst, std::abs(actual[i] - expected[i]));
//   EXPECT_LE(worst, 1e-5);
#pragma once

#include <cmath>

namespace trainyard::core {

// Raises `worst` to `difference` where that is larger, or NaN. From then on it stays NaN, which is within no bound:
// std::max() leaves NaN out, so that a result of NaN would pass.
inline void take_worst(double& worst, double difference) {
  if (!std::isnan(worst) && !(difference <= worst)) worst = difference;
}

}  // namespace trainyard::core
