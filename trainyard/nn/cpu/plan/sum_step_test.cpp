// What a sum knows of its output without looking at it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn::cpu::sum_step_test {
namespace {

// Each value has a bound of its own, so that no other two have the same sum.
TEST(SumStep, IsBoundedByTheBoundsOfItsTerms) {
  GraphBuilder b({.image = {16, 8, 8}, .name = "sum"});
  const auto large = b.max_pool("large", b.input(), {.kernel = 2, .stride = 2});
  const auto mean = b.average_pool("mean", b.input(), {.kernel = 2, .stride = 2});
  const Graph graph = b.build(b.global_average_pool("pool", b.add("sum", {large, mean})));
  ParameterSet set;
  set.allocate();
  const BuildContext context{.mode = Mode::kInference, .parameters = &set};
  const Plan::Layers layers;
  const Plan plan(graph, context, layers, {.gradients = false});
  const PlanStep* sum = nullptr;
  for (const auto& step : plan.steps()) {
    if (step->inputs().size() == 2) sum = step.get();
  }
  ASSERT_NE(sum, nullptr);
  cpu::Run run;
  for (size_t i = 0; i < 12; ++i) run.bounds.push_back(static_cast<float>(int64_t{1} << i));
  float expected = 0;
  for (const ValueId input : sum->inputs()) expected += run.bounds.at(static_cast<size_t>(input));
  EXPECT_EQ(sum->bound(run), expected * kRoundingUp);
}

}  // namespace
}  // namespace trainyard::nn::cpu::sum_step_test
