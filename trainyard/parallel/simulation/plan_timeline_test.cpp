// Plans in simulated time, compared with times that are counted by hand.
#include "trainyard/parallel/simulation/plan_timeline.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::plan_timeline_test {
namespace {

using Action = Step::Action;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

RankLayout ranks_apart(int ranks) {
  return layout_of(std::vector<int>(static_cast<size_t>(ranks), 1), {});
}

std::vector<CollectivePlan> plans_of_chain(int ranks, int64_t elements) {
  std::vector<CollectivePlan> plans;
  RankLayout layout = ranks_apart(ranks);
  for (layout.process = 0; layout.process < ranks; ++layout.process) {
    plans.push_back(collective_algorithms().get("chain")->plan(
        {.kind = CollectiveCall::Kind::kAllReduce, .elements = elements, .layout = layout}));
  }
  return plans;
}

// The agreement passes all processes and returns; then each phase of a ring takes a message.
TEST(PlanTimeline, LatenciesAreThoseOfMessagesOneAfterAnother) {
  const LinkModel link{.latency_seconds = 0.5, .bytes_per_second = kInfinite};
  for (const int ranks : {2, 3, 5, 8}) {
    const double agreement = 2 * (ranks - 1) * 0.5;
    EXPECT_DOUBLE_EQ(plan_seconds(plans_of("ring", ranks_apart(ranks), 1000), at::kFloat, link),
                     agreement + 2 * (ranks - 1) * 0.5)
        << ranks;
    // The place, rank 0, is the last to know of the agreement: the values of all others are there by then.
    EXPECT_DOUBLE_EQ(plan_seconds(plans_of("shuffle", ranks_apart(ranks), 1000), at::kFloat, link), agreement + 0.5)
        << ranks;
    // A chunk of the chain travels with the agreement.
    EXPECT_DOUBLE_EQ(plan_seconds(plans_of_chain(ranks, 1000), at::kFloat, link), 2 * (ranks - 1) * 0.5) << ranks;
  }
  EXPECT_DOUBLE_EQ(plan_seconds(plans_of("rechd", ranks_apart(8), 1000), at::kFloat, link), 2 * 7 * 0.5 + 6 * 0.5);
}

TEST(PlanTimeline, BytesPassALinkOneAfterAnother) {
  const LinkModel link{.latency_seconds = 0, .bytes_per_second = 100};
  const int64_t elements = 16 * chunk_elements(at::kFloat);
  const double tensor = 4.0 * static_cast<double>(elements) / 100;
  EXPECT_DOUBLE_EQ(plan_seconds(plans_of("ring", ranks_apart(4), elements), at::kFloat, link), 2 * 3 / 4.0 * tensor);
  EXPECT_DOUBLE_EQ(plan_seconds(plans_of("rechd", ranks_apart(4), elements), at::kFloat, link), 2 * 3 / 4.0 * tensor);
  // Both ranks of a chain of two send the tensor once, the second one a chunk later.
  EXPECT_DOUBLE_EQ(plan_seconds(plans_of_chain(2, elements), at::kFloat, link), 17 / 16.0 * tensor);
}

TEST(PlanTimeline, AnImpossibleLinkIsAnErrorAlsoWhereNothingPassesIt) {
  EXPECT_EQ(plan_seconds({}, at::kFloat, {1, 1}), 0);
  const auto problem = [](const LinkModel& link) {
    return core::problem_of([&] { (void)plan_seconds({}, at::kFloat, link); });
  };
  EXPECT_EQ(problem({-1, 1}), "a link has an impossible latency");
  EXPECT_EQ(problem({kInfinite, 1}), "a link has an impossible latency");
  EXPECT_EQ(problem({0, 0}), "a link has an impossible bandwidth");
  EXPECT_EQ(problem({0, kInfinite}), "");
}

// The second of three processes knows of the agreement after three latencies. The message of an early lane is there
// after one, and nothing else arrives from then on.
TEST(PlanTimeline, AMessageMayBeThereBeforeItsReceiverBegins) {
  CollectivePlan sends, receives;
  sends.lanes.push_back({.steps = {{.action = Action::kSend, .peer = 1, .elements = 1}}, .early = true});
  receives.lanes.push_back({.steps = {{.action = Action::kReceive, .peer = 0, .elements = 1}}});
  const LinkModel link{.latency_seconds = 0.5, .bytes_per_second = kInfinite};
  EXPECT_DOUBLE_EQ(plan_seconds({sends, receives, CollectivePlan()}, at::kFloat, link), 4 * 0.5);
}

// A transfer begins where its lane has room for one more, a copy when all steps before it are done. The first process
// sends after two latencies, the second one is ready to after one.
TEST(PlanTimeline, StepsOfALaneWaitForThoseBefore) {
  const LinkModel link{.latency_seconds = 0.5, .bytes_per_second = kInfinite};
  const auto seconds = [&](int window, bool copies) {
    const Step to_second{.action = Action::kSend, .peer = 1, .elements = 1};
    const Step from_second{.action = Action::kReceive, .peer = 1, .elements = 1};
    const Step to_first{.action = Action::kSend, .peer = 0, .elements = 1};
    const Step from_first{.action = Action::kReceive, .peer = 0, .elements = 1};
    CollectivePlan first, second;
    first.lanes.push_back({.steps = {to_second, from_second}});
    second.lanes.push_back({.steps = {from_first}, .window = window});
    if (copies) second.lanes.back().steps.push_back({.action = Action::kCopy});
    second.lanes.back().steps.push_back(to_first);
    return plan_seconds({first, second}, at::kFloat, link);
  };
  EXPECT_DOUBLE_EQ(seconds(1, false), 4 * 0.5) << "there and back, after the agreement";
  EXPECT_DOUBLE_EQ(seconds(2, false), 3 * 0.5) << "both messages at a time";
  EXPECT_DOUBLE_EQ(seconds(2, true), 4 * 0.5);
}

TEST(PlanTimeline, AMessageWithoutASenderIsAnError) {
  CollectivePlan waits;
  waits.lanes.push_back({.steps = {{.action = Action::kReceive, .peer = 0, .elements = 1}}});
  EXPECT_THAT(core::message_of(
                  [&] {
                    (void)plan_seconds({CollectivePlan{}, waits}, at::kFloat, {1, 1});
                  },
                  core::ErrorCode::kInternal),
              ::testing::HasSubstr("process 1"));
}

}  // namespace
}  // namespace trainyard::parallel::plan_timeline_test
