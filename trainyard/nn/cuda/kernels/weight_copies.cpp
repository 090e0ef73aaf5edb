#include "trainyard/nn/cuda/kernels/weight_copies.h"

#include <algorithm>

namespace trainyard::nn::cuda {

WeightPlan plan_weights(const std::vector<WeightSource>& sources) {
  WeightPlan plan;
  for (const WeightSource& source : sources) {
    const int64_t count = source.outer * source.inner * source.pixels;
    plan.destinations.push_back(plan.total);
    for (int64_t begin = 0; begin < count; begin += kWeightPart) {
      plan.copies.push_back({.source = source.source,
                             .destination = plan.total,
                             .outer = source.outer,
                             .inner = source.inner,
                             .pixels = source.pixels,
                             .begin = begin,
                             .end = std::min(begin + kWeightPart, count)});
    }
    plan.total += (count + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  }
  return plan;
}

}  // namespace trainyard::nn::cuda
