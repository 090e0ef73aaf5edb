// Plans of the replicas of one process. All algorithms' plans run through it in their own tests.
#include "trainyard/parallel/collectives/plan/plan_run.h"

#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::plan_run_test {
namespace {

using Action = Step::Action;

PlanMemory memory_of_two(std::vector<float>& first, std::vector<float>& second) {
  return {.ranks = 2, .replicas = {first.data(), second.data()}, .gathered = {}};
}

// Returns the plan of one lane with this step.
CollectivePlan plan_of(const Step& step) {
  CollectivePlan plan;
  plan.lanes.push_back({.steps = {step}});
  return plan;
}

TEST(PlanRun, OfThreadsRefusesAPlanThatCannotEnd) {
  std::vector<float> first(4), second(4);
  const auto refusal = [&](const Step& step) {
    PlanRun run(plan_of(step), memory_of_two(first, second));
    return core::message_of([&run] { run.run_locally(); }, core::ErrorCode::kInternal);
  };
  const Step copy{.elements = 4, .from = Place::replica(0, 0), .to = Place::replica(1, 0)};
  EXPECT_EQ(refusal(copy), "no error");
  Step waits = copy;
  waits.after[0] = After{.lane = 0, .steps = 1};
  EXPECT_EQ(refusal(waits), "the plan of a collective waits for itself");
  Step sends = copy;
  sends.action = Action::kSend;
  sends.peer = 1;
  EXPECT_EQ(refusal(sends), "the plan of threads of one process has a message");
}

// 1 + 2^-10 lies between two bfloat16 numbers, and so do 257 and 1025.
TEST(PlanRun, RoundsTheResultOfItsElementsToTheTypeOfMessages) {
  constexpr float kFine = 1.0009765625F;
  const std::vector<float> before{kFine, kFine, 256, 1024, kFine}, added{kFine, 0, 1, 1, kFine};
  std::vector<float> first = before, second = added;
  CollectivePlan plan = plan_of(
      {.action = Action::kReduce, .elements = 3, .values = Place::all_replicas(1), .to = Place::all_replicas(1)});
  PlanRun exact(plan, memory_of_two(first, second));
  exact.run_locally();
  EXPECT_TRUE(exact.complete());
  EXPECT_EQ(first, (std::vector<float>{kFine, kFine, 257, 1025, kFine}));
  EXPECT_EQ(second, (std::vector<float>{kFine, kFine, 257, 1025, kFine}));
  first = before;
  second = added;
  plan.wire = at::kBFloat16;
  PlanRun(plan, memory_of_two(first, second)).run_locally();
  EXPECT_EQ(first, (std::vector<float>{kFine, 1, 256, 1024, kFine}));
  EXPECT_EQ(second, (std::vector<float>{kFine, 1, 256, 1024, kFine}));
}

TEST(PlanRun, FinishesSumsInTheMemoryOfAReplica) {
  std::vector<float> first{1, 2, 3, 4}, second{10, 20, 30, 40};
  CollectivePlan plan =
      plan_of({.action = Action::kReduce, .elements = 2, .values = Place::all_replicas(1), .to = Place::scratch(0, 0)});
  plan.scratch.push_back({.elements = 2, .sums = true});
  plan.lanes[0].steps.push_back({.action = Action::kFinish,
                                 .elements = 2,
                                 .from = Place::scratch(0, 0),
                                 .to = Place::replica(1, 1),
                                 .after = {After{.lane = 0, .steps = 1}}});
  PlanMemory memory = memory_of_two(first, second);
  memory.op = core::ReduceOp::kMean;
  PlanRun run(plan, memory);
  EXPECT_FALSE(run.complete());
  run.run_locally();
  EXPECT_TRUE(run.complete());
  EXPECT_TRUE(run.quiet());
  EXPECT_EQ(run.waits_for(), -1);
  EXPECT_EQ(run.sent(), Traffic());
  EXPECT_EQ(first, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(second, (std::vector<float>{10, 11, 16.5F, 40}));
}

}  // namespace
}  // namespace trainyard::parallel::plan_run_test
