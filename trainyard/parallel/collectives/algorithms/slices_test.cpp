// The shares of the workers. What they compute is tested in thread_communicator_test.cpp.
#include <gtest/gtest.h>

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel::slices_test {
namespace {

using Kind = CollectiveCall::Kind;

TEST(Slices, EachElementIsReducedOnceInSlicesOfWholeCacheLines) {
  const CollectiveAlgorithm& slices = *collective_algorithms().get("slices");
  for (const int workers : {2, 3, 5}) {
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{65}, int64_t{1'000'003}}) {
      int64_t end = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const CollectivePlan plan = slices.plan({.kind = Kind::kAllReduce,
                                                 .elements = elements,
                                                 .layout = {.first_ranks = {0, workers}},
                                                 .workers = workers,
                                                 .worker = worker});
        for (const Lane& lane : plan.lanes) {
          for (const Step& step : lane.steps) {
            EXPECT_EQ(step.action, Step::Action::kReduce);
            EXPECT_EQ(step.to.begin, end);
            EXPECT_EQ(step.to.begin % 64, 0) << "two workers would write to one line";
            end = step.to.begin + step.elements;
          }
        }
      }
      EXPECT_EQ(end, elements) << workers << " workers";
    }
  }
}

}  // namespace
}  // namespace trainyard::parallel::slices_test
