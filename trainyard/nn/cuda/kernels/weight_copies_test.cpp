#include "trainyard/nn/cuda/kernels/weight_copies.h"

#include <numeric>

#include <gtest/gtest.h>

namespace trainyard::nn::cuda::weight_copies_test {
namespace {

// What the kernel does, by its definition.
std::vector<float> run(const WeightPlan& plan, const std::vector<float>& values) {
  std::vector<float> out(static_cast<size_t>(plan.total), -1.0F);
  for (const WeightCopy& copy : plan.copies) {
    for (int64_t i = copy.begin; i < copy.end; ++i) {
      const int64_t inner = i % copy.inner, pixel = i / copy.inner % copy.pixels, outer = i / copy.inner / copy.pixels;
      out[static_cast<size_t>(copy.destination + i)] =
          values[static_cast<size_t>(copy.source + (outer * copy.inner + inner) * copy.pixels + pixel)];
    }
  }
  return out;
}

TEST(WeightCopies, PutChannelsInnermostAndMissNothing) {
  const std::vector<WeightSource> sources = {{.source = 16, .outer = 5, .inner = 3, .pixels = 9},
                                             {.source = 160, .outer = 1, .inner = 7, .pixels = 1},
                                             {.source = 176, .outer = 300, .inner = 40, .pixels = 4}};
  std::vector<float> values(176 + 300 * 40 * 4);
  std::iota(values.begin(), values.end(), 0.0F);
  const WeightPlan plan = plan_weights(sources);
  const std::vector<float> out = run(plan, values);
  for (size_t s = 0; s < sources.size(); ++s) {
    const WeightSource& w = sources[s];
    EXPECT_EQ(plan.destinations[s] % kWeightAlignment, 0);
    for (int64_t o = 0; o < w.outer; ++o) {
      for (int64_t p = 0; p < w.pixels; ++p) {
        for (int64_t i = 0; i < w.inner; ++i) {
          const int64_t place = plan.destinations[s] + (o * w.pixels + p) * w.inner + i;
          ASSERT_EQ(out[static_cast<size_t>(place)], static_cast<float>(w.source + (o * w.inner + i) * w.pixels + p));
        }
      }
    }
  }
  for (const WeightCopy& copy : plan.copies) EXPECT_LE(copy.end - copy.begin, kWeightPart);
}

TEST(WeightCopies, NoneAreNothing) {
  const WeightPlan plan = plan_weights({});
  EXPECT_EQ(plan.total, 0);
  EXPECT_TRUE(plan.copies.empty());
}

}  // namespace
}  // namespace trainyard::nn::cuda::weight_copies_test
