// Costs of all-reduces: closed forms, and the simulated execution of the plans of all ranks.
#include "trainyard/parallel/simulation/exchange_cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/simulation/plan_timeline.h"
#include "trainyard/parallel/simulation/simulated_algorithm.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::exchange_cost_test {
namespace {

AlgorithmChoice choice_of(const std::string& name) {
  return name == "chain" ? AlgorithmChoice(choose_algorithm) : all_reduce_options(name).choice();
}

ExchangeCost cost_of(const std::string& name, int ranks, int64_t elements, uint64_t number = 0) {
  return all_reduce_cost(choice_of(name), ranks, elements, number);
}

TEST(ExchangeCost, OneRankExchangesNothing) {
  for (const std::string name : {"chain", "ring", "shuffle", "hierarchical_copy/dgx1"}) {
    EXPECT_EQ(cost_of(name, 1, 1 << 20).seconds({1, 1}), 0) << name;
  }
}

// docs/design/collectives.md, "What each rank sends".
TEST(ExchangeCost, IsThatOfTheClosedForms) {
  const int64_t chunk = chunk_elements(at::kFloat);
  for (const int n : {2, 4, 8, 16}) {
    const int64_t elements = 16 * chunk;
    const double bytes = 4.0 * static_cast<double>(elements), piece = 4.0 * static_cast<double>(chunk);
    const double agreement = 2 * (n - 1);
    for (const std::string name : {"ring", "xring", "rechd"}) {
      const ExchangeCost cost = cost_of(name, n, elements);
      EXPECT_DOUBLE_EQ(cost.busy_bytes, 2.0 * (n - 1) / n * bytes) << name << n;
      EXPECT_DOUBLE_EQ(cost.common_bytes, cost.busy_bytes) << name << n;
      EXPECT_DOUBLE_EQ(cost.pipelined.bytes, cost.busy_bytes) << name << n;
      const double rounds = name == "rechd" ? 2 * std::log2(n) : 2 * (n - 1);
      EXPECT_DOUBLE_EQ(cost.pipelined.messages, agreement + rounds) << name << n;
    }
    const ExchangeCost shuffle = cost_of("shuffle", n, elements);
    EXPECT_EQ(shuffle.busiest, 0);
    EXPECT_DOUBLE_EQ(shuffle.busy_bytes, (n - 1) * bytes);
    EXPECT_DOUBLE_EQ(shuffle.common_bytes, bytes);
    EXPECT_DOUBLE_EQ(shuffle.pipelined.messages, agreement + 2);
    EXPECT_DOUBLE_EQ(shuffle.pipelined.bytes, (n - 1) * (bytes + piece));
    EXPECT_DOUBLE_EQ(cost_of("shuffle#" + std::to_string(n), n, elements).busy_bytes, 2.0 * (n - 1) / n * bytes);
    EXPECT_EQ(cost_of("pscpu", n, elements, 5).busiest, n == 2 ? 0 : 5 % n);  // two ranks have the same to do
    // A root sends to its own group, and to the other root.
    EXPECT_DOUBLE_EQ(cost_of("hierarchical_copy/dgx1", n, elements).busy_bytes, n / 2 * bytes);
    const ExchangeCost chain = cost_of("chain", n, elements);
    EXPECT_DOUBLE_EQ(chain.busy_bytes, (n == 2 ? 1 : 2) * bytes);
    EXPECT_DOUBLE_EQ(chain.pipelined.messages, agreement);
    EXPECT_DOUBLE_EQ(chain.pipelined.bytes, chain.busy_bytes + 2 * (n - 1) * piece - (n == 2 ? 1 : 2) * piece);
  }
}

// The rank whose plan is counted is the busiest of all.
TEST(ExchangeCost, CountsTheBusiestRank) {
  const int64_t elements = 3 * chunk_elements(at::kFloat) + 77;
  for (const std::string name : {"ring#2", "xring", "rechd", "shuffle#2", "pscpu", "psgpu", "hierarchical_copy/dgx1"}) {
    for (const int n : {2, 3, 5, 6, 8}) {
      for (const uint64_t number : {0, 1, 6}) {
        const RankLayout apart = layout_of(std::vector<int>(static_cast<size_t>(n), 1), {});
        double sent = 0;
        for (const CollectivePlan& plan : plans_of(name, apart, elements, at::kFloat, number)) {
          sent = std::max(sent, static_cast<double>(traffic_of(plan, at::kFloat).bytes));
        }
        EXPECT_DOUBLE_EQ(cost_of(name, n, elements, number).busy_bytes, sent) << name << " " << n << " " << number;
      }
    }
  }
}

// The cost of the busiest rank agrees with the execution of all plans, step by step.
TEST(ExchangeCost, AgreesWithPlansInSimulatedTime) {
  const LinkModel fast{5e-6, 12.5e9}, slow{50e-6, 1.25e9}, far{5e-3, 1.25e9};
  for (const std::string name :
       {"chain", "ring", "xring#2", "rechd", "shuffle", "shuffle#2", "pscpu", "hierarchical_copy/dgx1"}) {
    for (const int n : {2, 4, 8}) {
      for (const int64_t elements : {int64_t{1000}, int64_t{1} << 18, int64_t{1} << 20}) {
        RankLayout layout = layout_of(std::vector<int>(static_cast<size_t>(n), 1), {});
        const AlgorithmChoice choose = choice_of(name);
        std::vector<CollectivePlan> plans;
        for (layout.process = 0; layout.process < n; ++layout.process) {
          const CollectiveRequest request{
              .kind = CollectiveCall::Kind::kAllReduce, .elements = elements, .layout = layout};
          plans.push_back(choose(request).plan(request));
        }
        for (const LinkModel& link : {fast, slow, far}) {
          const double executed = plan_seconds(plans, at::kFloat, link);
          // What others have sent before the last rank knows of the agreement saves it a latency.
          EXPECT_NEAR(cost_of(name, n, elements).seconds(link), executed, 0.3 * executed + link.latency_seconds)
              << name << " " << n << " " << elements << " " << link.latency_seconds << " executed " << executed;
        }
      }
    }
  }
}

// Beyond what is counted the costs continue in a straight line: compared with what a ring and a shuffle really have.
TEST(ExchangeCost, OfLargeTensorsContinuesInAStraightLine) {
  const int64_t elements = 40 * kMostCounted;
  const double bytes = 4.0 * static_cast<double>(elements);
  EXPECT_NEAR(cost_of("ring", 4, elements).busy_bytes / (1.5 * bytes), 1, 1e-9);
  EXPECT_NEAR(cost_of("ring", 4, elements).pipelined.bytes / (1.5 * bytes), 1, 1e-9);
  EXPECT_EQ(cost_of("ring", 4, elements).pipelined.messages, 12);
  EXPECT_NEAR(cost_of("shuffle", 3, elements).busy_bytes / (2 * bytes), 1, 1e-9);
  EXPECT_NEAR(cost_of("shuffle", 3, elements).common_bytes / bytes, 1, 1e-9);
  EXPECT_NEAR(cost_of("chain", 3, elements).busy_bytes / (2 * bytes), 1, 1e-9);
}

TEST(ExchangeCost, ServersShareTheirLinksAmongWorkers) {
  const LinkModel link{1, 10};
  EXPECT_DOUBLE_EQ(server_cost(8, 2, 100).seconds(link), 1 + 8 * 100 / 2 / 10.0);
  // With more servers than workers the worker's own link is the narrow one.
  EXPECT_DOUBLE_EQ(server_cost(2, 4, 100).seconds(link), 1 + 100 / 10.0);
  EXPECT_EQ(server_cost(8, 2, 100).busy_bytes, 400);
  EXPECT_EQ(server_cost(8, 2, 100).common_bytes, 400);
  EXPECT_EQ(server_cost(2, 4, 100).common_bytes, 100);
}

TEST(ExchangeCost, ALayoutThatDoesNotFitIsAnError) {
  EXPECT_THAT(core::message_of([] { (void)cost_of("shuffle#3", 2, 100); }, core::ErrorCode::kInvalidArgument),
              ::testing::HasSubstr("only 2 devices, but group_size=3"));
}

// The names that a prediction takes, by the closed forms above.
TEST(SimulatedAlgorithm, IsTheOneOfItsName) {
  const int64_t elements = int64_t{1} << 20;
  const double bytes = 4.0 * static_cast<double>(elements);
  const auto cost = [&](const std::string& name) { return all_reduce_cost(simulated_choice(name, 4), 4, elements, 0); };
  EXPECT_DOUBLE_EQ(cost("ring").busy_bytes, 1.5 * bytes);
  EXPECT_DOUBLE_EQ(cost("shuffle").busy_bytes, 3 * bytes);
  EXPECT_DOUBLE_EQ(cost("shuffle#n").busy_bytes, 1.5 * bytes) << "as many shards as workers";
  EXPECT_DOUBLE_EQ(cost("hierarchical_copy").busy_bytes, 2 * bytes);
  EXPECT_DOUBLE_EQ(cost("chain").busy_bytes, 2 * bytes);
  EXPECT_LT(cost("chain/64K").pipelined.bytes, cost("chain/1M").pipelined.bytes) << "shorter chunks follow sooner";
  for (const std::string name : {"", "auto"}) {
    EXPECT_THAT(core::message_of([&] { (void)simulated_choice(name, 4); }),
                ::testing::AllOf(::testing::HasSubstr("only algorithms that are named can be predicted"),
                                 ::testing::HasSubstr("got '" + name + "'")));
  }
}

}  // namespace
}  // namespace trainyard::parallel::exchange_cost_test
