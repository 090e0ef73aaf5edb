// The interface of an algorithm, by a second one that is stated here: it runs through the engine as the chain does.
#include <cstring>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/parallel/collectives/plan/algorithm.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::collective_algorithm_test {
namespace {

using core::Communicator;
using core::ReduceOp;
using Action = Step::Action;

// All processes send their replicas' values to the first one, which adds them up in rank order and sends the result to
// all. One lane, each step of which waits for the one before.
class GatherAndBroadcast final : public CollectiveAlgorithm {
 public:
  explicit GatherAndBroadcast(bool swapped = false) : swapped_(swapped) {}

  bool can(const CollectiveRequest& request) const override { return request.kind == CollectiveCall::Kind::kAllReduce; }

  CollectivePlan plan(const CollectiveRequest& request) const override {
    const RankLayout& layout = request.layout;
    const int64_t count = request.elements;
    CollectivePlan plan;
    Lane& lane = plan.lanes.emplace_back();
    lane.window = 1;
    const Place result = Place::replica(0, 0);
    if (layout.process > 0) {
      for (int r = 0; r < layout.local(); ++r) {
        lane.steps.push_back({.action = Action::kSend, .peer = 0, .elements = count, .from = Place::replica(r, 0)});
      }
      lane.steps.push_back({.action = Action::kReceive, .peer = 0, .elements = count, .to = result});
      lane.steps.push_back({.elements = count, .from = result, .to = Place::all_replicas(0)});
      return plan;
    }
    plan.scratch = {{.elements = count, .sums = true}, {.elements = count}};
    const Place sums = Place::scratch(0, 0), arrival = Place::scratch(1, 0);
    lane.steps.push_back({.action = Action::kReduce, .elements = count, .values = Place::all_replicas(0), .to = sums});
    for (int rank = layout.end(); rank < layout.ranks(); ++rank) {
      const Step receive{.action = Action::kReceive, .peer = layout.process_of(rank), .elements = count, .to = arrival};
      const Step add{.action = Action::kReduce, .elements = count, .from = sums, .values = arrival, .to = sums};
      lane.steps.push_back(swapped_ ? add : receive);
      lane.steps.push_back(swapped_ ? receive : add);
    }
    lane.steps.push_back({.action = Action::kReduce, .elements = count, .from = sums, .to = Place::all_replicas(0)});
    for (int process = 1; process < layout.processes(); ++process) {
      lane.steps.push_back({.action = Action::kSend, .peer = process, .elements = count, .from = result});
    }
    return plan;
  }

 private:
  const bool swapped_;  // wrong: each sum comes before its values
};

at::Tensor random_values(int rank, int64_t elements, at::ScalarType type) {
  core::RandomStream stream(5, "values", {static_cast<uint64_t>(rank)});
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) values.mutable_data_ptr<float>()[i] = 10 * stream.normal();
  return values.to(type);
}

// Returns what all_reduce gives to each rank.
std::vector<at::Tensor> reduced(const Communicators& group, int64_t elements, at::ScalarType type, ReduceOp op) {
  std::vector<at::Tensor> results(group.size());
  expect_none(on_ranks(group, [&](Communicator& self) {
    at::Tensor& own = results[static_cast<size_t>(self.rank())] = random_values(self.rank(), elements, type);
    self.all_reduce(own, op);
  }));
  return results;
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), b.nbytes()) == 0;
}

AlgorithmChoice always(const CollectiveAlgorithm& algorithm) {
  return [&algorithm](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
    return algorithm.can(request) ? algorithm : choose_algorithm(request);
  };
}

class CollectiveAlgorithms : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Layouts, CollectiveAlgorithms,
                         testing::Values(std::vector{4}, std::vector{2, 2}, std::vector{1, 1, 1, 1}, std::vector{1, 3},
                                         std::vector{2, 1, 3}));

TEST_P(CollectiveAlgorithms, ASecondOneGivesTheSumInTheOrderOfRanks) {
  const GatherAndBroadcast second;
  const auto engines = make_engines(static_cast<int>(GetParam().size()));
  const Communicators group = connect(engines, GetParam(), kLongDeadline, always(second));
  const Communicators threads = make_thread_communicators(static_cast<int>(group.size()));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kInt}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMean}) {
      if (type == at::kInt && op == ReduceOp::kMean) continue;
      const at::Tensor expected = reduced(threads, 100'003, type, op)[0];
      for (const at::Tensor& result : reduced(group, 100'003, type, op)) EXPECT_TRUE(equal_bits(result, expected));
    }
  }
}

TEST_P(CollectiveAlgorithms, WhatEachProcessSendsIsCounted) {
  const GatherAndBroadcast second;
  const auto layout = GetParam();
  const auto engines = make_engines(static_cast<int>(layout.size()));
  const Communicators group = connect(engines, layout, kLongDeadline, always(second));
  std::vector<Traffic> before;
  for (const auto& engine : engines) before.push_back(engine->sent());
  (void)reduced(group, 1000, at::kFloat, ReduceOp::kSum);
  // What is counted is so before anybody's wait ends.
  for (size_t p = 0; p < engines.size(); ++p) {
    const Traffic sent = engines[p]->sent();
    const auto messages = static_cast<int64_t>(p == 0 ? layout.size() - 1 : static_cast<size_t>(layout[p]));
    EXPECT_EQ(sent.messages - before[p].messages, messages) << p;
    EXPECT_EQ(sent.bytes - before[p].bytes, 4000 * messages) << p;
  }
}

TEST(CollectiveAlgorithm, TheOrderOfStepsDecides) {
  const GatherAndBroadcast wrong(/*swapped=*/true);
  const Communicators group = connect(make_engines(2), {1, 1}, kLongDeadline, always(wrong));
  const Communicators threads = make_thread_communicators(2);
  const at::Tensor expected = reduced(threads, 1000, at::kFloat, ReduceOp::kSum)[0];
  EXPECT_FALSE(equal_bits(reduced(group, 1000, at::kFloat, ReduceOp::kSum)[0], expected));
}

TEST(CollectiveAlgorithm, IsChosenByWhereTheReplicasAre) {
  const RankLayout threads{.first_ranks = {0, 4}}, processes{.first_ranks = {0, 2, 4}};
  const auto name = [](const CollectiveRequest& request) {
    for (const std::string& each : collective_algorithms().names()) {
      if (collective_algorithms().get(each).get() == &choose_algorithm(request)) return each;
    }
    return std::string();
  };
  EXPECT_EQ(name({.layout = threads, .workers = 4}), "slices");
  EXPECT_EQ(name({.layout = threads}), "chain");
  EXPECT_EQ(name({.layout = processes}), "chain");
}

}  // namespace
}  // namespace trainyard::parallel::collective_algorithm_test
