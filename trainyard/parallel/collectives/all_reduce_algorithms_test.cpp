// What the algorithms of an all_reduce_spec compute, over threads and over processes, against sums in double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::all_reduce_algorithms_test {
namespace {

using core::Communicator, core::ReduceOp, std::chrono::milliseconds;
using Action = Step::Action;

// Names that `ranks` ranks of one machine can do.
std::vector<std::string> algorithms_of(int ranks) {
  std::vector<std::string> names = {"ring",         "ring#2",      "xring",       "xring#2",
                                    "xring#3",      "rechd",       "collective",  "collective#2",
                                    "collective#3", "shuffle",     "pscpu",       "psgpu",
                                    "pscpu/pscpu",  "pscpu/xring", "pscpu/rechd", "hierarchical_copy/dgx1"};
  if (ranks >= 2) names.insert(names.end(), {"shuffle#2", "psgpu#2"});
  if (ranks == 8) names.emplace_back("hierarchical_copy/gcp_v100");
  return names;
}

// The largest number of additions that a value goes through.
int additions(const std::string& name, int ranks) {
  if (name == "rechd") {
    const auto active = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
    return std::countr_zero(static_cast<unsigned>(active)) + (active < ranks ? 1 : 0);
  }
  if (name.starts_with("hierarchical_copy")) return ranks - ranks / 2 - 1 + (ranks > 1 ? 1 : 0);
  return ranks - 1;
}

// The bound of the relative error, with regard to the sum of magnitudes, of so many additions in float, each of which
// may be followed by a rounding to the wire type, as is the result (Higham, Accuracy and Stability of Numerical
// Algorithms, 4.2).
double error_bound(int additions, double wire_rounding) {
  return std::pow(1 + 0x1p-24, additions) * std::pow(1 + wire_rounding, additions + 1) - 1;
}

// Values of all ranks, and what their sum is in double precision.
struct Inputs {
  explicit Inputs(std::vector<at::Tensor> of_ranks) : values(std::move(of_ranks)) {
    sum = at::zeros(values[0].sizes(), at::kDouble);
    magnitude = at::zeros(values[0].sizes(), at::kDouble);
    for (const at::Tensor& input : values) {
      sum += input.to(at::kDouble);
      magnitude += input.to(at::kDouble).abs();
    }
  }
  std::vector<at::Tensor> values;
  at::Tensor sum, magnitude;
};

void expect_sums(const Inputs& inputs, const std::vector<at::Tensor>& results, double bound, double smallest = 0) {
  for (const at::Tensor& result : results) EXPECT_TRUE(have_equal_bits(result, results[0]));
  const at::Tensor error = (results[0].to(at::kDouble) - inputs.sum).abs();
  EXPECT_TRUE((error <= inputs.magnitude * bound + smallest).all().item<bool>()) << error.max().item<double>();
}

class AllReduceAlgorithms : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceAlgorithms, testing::Range(1, 9));

TEST_P(AllReduceAlgorithms, EqualTheSumInDoublePrecisionOnEachThread) {
  const int ranks = GetParam();
  for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{150'001}}) {
    const Inputs inputs(normal_values_of_all(static_cast<size_t>(ranks), elements));
    for (const std::string& name : algorithms_of(ranks)) {
      SCOPED_TRACE(name);
      const Communicators group = make_thread_communicators(ranks, all_reduce_options(name).choice());
      expect_sums(inputs, all_reduced(group, inputs.values), error_bound(additions(name, ranks), 0));
    }
  }
}

// However the ranks of a machine are distributed over processes.
TEST_P(AllReduceAlgorithms, HaveTheBitsOfThreadsOverProcesses) {
  const int ranks = GetParam();
  std::vector<std::vector<int>> layouts = {std::vector<int>(static_cast<size_t>(ranks), 1)};
  if (ranks > 1) layouts.push_back({ranks});
  if (ranks > 2) layouts.push_back({1, ranks - 2, 1});
  const auto inputs = normal_values_of_all(static_cast<size_t>(ranks), 70'003);
  std::map<std::string, at::Tensor> of_threads;
  for (const std::string& name : algorithms_of(ranks)) {
    of_threads[name] = all_reduced(make_thread_communicators(ranks, all_reduce_options(name).choice()), inputs)[0];
  }
  for (const std::vector<int>& layout : layouts) {
    const auto engines = make_engines(static_cast<int>(layout.size()));
    for (const std::string& name : algorithms_of(ranks)) {
      SCOPED_TRACE(fmt::format("{} over {} processes", name, layout.size()));
      const Communicators group = connect(engines, layout, kLongDeadline, all_reduce_options(name).choice());
      const auto sent = [&] {
        std::vector<Traffic> all;
        for (const auto& engine : engines) all.push_back(engine->sent());
        return all;
      };
      // Places take turns, which changes no bit.
      for (const uint64_t number : {0, 1}) {
        const std::vector<Traffic> before = sent();
        for (const at::Tensor& result : all_reduced(group, inputs)) {
          EXPECT_TRUE(have_equal_bits(result, of_threads[name]));
        }
        // What has left is what the plans say.
        const std::vector<Traffic> after = sent();
        const RankLayout on_one_machine = layout_of(layout, std::vector<int>(layout.size(), 0));
        const auto plans = plans_of(name, on_one_machine, 70'003, at::kFloat, number);
        for (size_t p = 0; p < plans.size(); ++p) {
          const Traffic moved{after[p].messages - before[p].messages, after[p].bytes - before[p].bytes};
          EXPECT_EQ(moved, traffic_of(plans[p], at::kFloat)) << "process " << p;
        }
      }
    }
  }
}

TEST_P(AllReduceAlgorithms, ReduceEachTypeInEachOperation) {
  const int ranks = GetParam();
  if (ranks > 5) return;
  for (const std::string& name : algorithms_of(ranks)) {
    SCOPED_TRACE(name);
    const Communicators group = make_thread_communicators(ranks, all_reduce_options(name).choice());
    // Numbers whose sums all types hold exactly.
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
        if (!can_reduce(type, op)) continue;
        std::vector<at::Tensor> inputs;
        for (int rank = 0; rank < ranks; ++rank) inputs.push_back(at::full({2, 5}, 4 * (rank + 1), type));
        const double expected = op == ReduceOp::kSum    ? 2 * ranks * (ranks + 1)
                                : op == ReduceOp::kMean ? 2 * (ranks + 1)
                                : op == ReduceOp::kMax  ? 4 * ranks
                                                        : 4;
        for (const at::Tensor& result : all_reduced(group, inputs, op)) {
          EXPECT_EQ(result.min().item<double>(), expected) << c10::toString(type) << static_cast<int>(op);
          EXPECT_EQ(result.max().item<double>(), expected) << c10::toString(type) << static_cast<int>(op);
        }
      }
    }
  }
}

// Numbers travel in 16 bits and are added in float. All ranks have the same bits, which the wire type holds.
TEST_P(AllReduceAlgorithms, CompactTransfersAreSummedInFloat) {
  const int ranks = GetParam();
  for (const auto& [wire, rounding] : {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
    std::vector<std::string> names = algorithms_of(ranks);
    names.emplace_back();  // the chain
    const Inputs inputs(normal_values_of_all(static_cast<size_t>(ranks), 2003));
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      AllReduceOptions options = all_reduce_options(name);
      options.wire = wire;
      for (const bool threads : {true, false}) {
        if (!threads && ranks != 3) continue;
        const Communicators group = threads ? make_thread_communicators(ranks, options.choice())
                                            : connect(make_engines(2), {1, 2}, kLongDeadline, options.choice());
        const auto results = all_reduced(group, inputs.values);
        expect_sums(inputs, results, error_bound(additions(name, ranks), rounding), 0x1p-24 * ranks);
        EXPECT_TRUE(have_equal_bits(results[0].to(wire).to(at::kFloat), results[0]));
        // A mean is rounded after its division.
        std::vector<at::Tensor> ones(static_cast<size_t>(ranks), at::full({3}, 1.0F));
        for (const at::Tensor& mean : all_reduced(group, ones, ReduceOp::kMean)) {
          EXPECT_EQ(mean.min().item<float>(), 1);
          EXPECT_EQ(mean.max().item<float>(), 1);
        }
      }
    }
  }
}

TEST(CompactTransfer, HalvesTheBytes) {
  for (const std::string name : {"", "xring", "rechd", "psgpu#2", "pscpu/pscpu"}) {
    const auto bytes_of = [&](std::optional<at::ScalarType> wire, at::ScalarType type) {
      AllReduceOptions options{.spec = name, .wire = wire};
      RankLayout layout = layout_of_ranks(4);
      const CollectiveRequest request{
          .kind = CollectiveCall::Kind::kAllReduce, .elements = 1000, .type = type, .layout = layout};
      return traffic_of(options.choice()(request).plan(request), type);
    };
    const Traffic plain = bytes_of({}, at::kFloat), compact = bytes_of(at::kBFloat16, at::kFloat);
    EXPECT_EQ(compact, (Traffic{plain.messages, plain.bytes / 2})) << name;
    EXPECT_EQ(bytes_of(at::kHalf, at::kLong), bytes_of({}, at::kLong)) << name;
  }
}

// The rank that finishes a sum has float's bits, and must round them as those that receive it do.
TEST(CompactTransfer, RoundsTheResultOfTheRankThatComputedIt) {
  const at::Tensor third = at::full({1}, 1.0F / 3);
  const Communicators alone =
      make_thread_communicators(1, AllReduceOptions{.spec = "ring", .wire = at::kHalf}.choice());
  EXPECT_TRUE(have_equal_bits(all_reduced(alone, {third})[0], third.to(at::kHalf).to(at::kFloat)));
}

// Sums are not those of the wire type: 256 + 1 is 256 in bfloat16.
TEST(CompactTransfer, AddsInFloat) {
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < 8; ++rank) inputs.push_back(at::full({1}, rank == 0 ? 256.0F : 1.0F));
  const Communicators group =
      make_thread_communicators(8, AllReduceOptions{.spec = "pscpu", .wire = at::kBFloat16}.choice());
  for (const at::Tensor& sum : all_reduced(group, inputs)) EXPECT_EQ(sum.item<float>(), 264);
}

// Every message has a receiver of the same bytes, in the order of its stream.
TEST(AllReducePlans, WhatOneSendsTheOtherReceives) {
  const RankLayout layouts[] = {layout_of_ranks(5), layout_of({2, 1, 3, 2}, {0, 0, 1, 2}), layout_of_ranks(8)};
  for (const RankLayout& layout : layouts) {
    for (const std::string& name : algorithms_of(layout.ranks())) {
      SCOPED_TRACE(name);
      const auto plans = plans_of(name, layout, 40 * chunk_elements(at::kHalf) + 11, at::kHalf);
      std::map<std::tuple<int, int, int>, std::vector<int64_t>> sent, received;  // bytes by sender, receiver, stream
      for (int p = 0; p < layout.processes(); ++p) {
        const CollectivePlan& plan = plans[static_cast<size_t>(p)];
        for (const Lane& lane : plan.lanes) {
          EXPECT_LT(lane.stream, kMostStreams);
          for (const Step& step : lane.steps) {
            const auto bytes = [&](const Place& place) {
              return step.elements * static_cast<int64_t>(element_bytes(plan, place, at::kHalf));
            };
            if (step.action == Action::kSend) sent[{p, step.peer, lane.stream}].push_back(bytes(step.from));
            if (step.action == Action::kReceive) received[{step.peer, p, lane.stream}].push_back(bytes(step.to));
            EXPECT_GT(step.elements, 0);
          }
        }
      }
      EXPECT_EQ(sent, received);
    }
  }
}

// Swaps two neighbouring steps of a thread's plan.
class SwappedSteps final : public CollectiveAlgorithm {
 public:
  SwappedSteps(AlgorithmChoice choose, int process, size_t lane, size_t step)
      : choose_(std::move(choose)), process_(process), lane_(lane), step_(step) {}
  bool can(const CollectiveRequest& request) const override { return choose_(request).can(request); }
  CollectivePlan plan(const CollectiveRequest& request) const override {
    CollectivePlan plan = choose_(request).plan(request);
    if (request.layout.process == process_ && request.elements > 0) {
      std::vector<Step>& steps = plan.lanes[lane_].steps;
      std::swap(steps[step_], steps[step_ + 1]);
    }
    return plan;
  }

 private:
  const AlgorithmChoice choose_;
  const int process_;
  const size_t lane_, step_;
};

bool same_place(const Place& a, const Place& b) {
  return a.memory != Place::Memory::kNone && a.memory == b.memory && a.index == b.index && a.begin == b.begin;
}

// Returns whether ranks notice that these steps are swapped: the mean is another one, or they wait for each other.
bool is_noticed(const AlgorithmChoice& choose, const SwappedSteps& swapped, const std::vector<at::Tensor>& inputs) {
  const auto ranks = static_cast<int>(inputs.size());
  const Communicators group =
      make_thread_communicators(ranks, [&](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
        return request.kind == CollectiveCall::Kind::kAllReduce ? swapped : choose_algorithm(request);
      });
  for (const auto& communicator : group) communicator->set_deadline(milliseconds(1000));
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : inputs) results.push_back(input.clone());
  const auto errors = on_ranks(
      group, [&](Communicator& self) { self.all_reduce(results[static_cast<size_t>(self.rank())], ReduceOp::kMean); });
  if (std::any_of(errors.begin(), errors.end(), [](const auto& error) { return error.has_value(); })) return true;
  // Behind the swapped steps, which could find the right sums in memory that was used before.
  const at::Tensor expected = all_reduced(make_thread_communicators(ranks, choose), inputs, ReduceOp::kMean)[0];
  return std::any_of(results.begin(), results.end(),
                     [&](const at::Tensor& result) { return !have_equal_bits(result, expected); });
}

// Each step that uses what the step before it has written must come after it.
TEST(AllReducePlans, TwoSwappedStepsAreFound) {
  constexpr int kRanks = 4;
  constexpr int64_t kElements = 1001;
  const auto inputs = normal_values_of_all(kRanks, kElements);
  int swaps = 0;
  for (const std::string& name : algorithms_of(kRanks)) {
    const AlgorithmChoice choose = all_reduce_options(name).choice();
    const auto plans = plans_of(name, layout_of_ranks(kRanks), kElements, at::kFloat, /*number=*/1);
    const int before = swaps;
    for (int process = 0; process < kRanks; ++process) {
      const std::vector<Lane>& lanes = plans[static_cast<size_t>(process)].lanes;
      for (size_t l = 0; l < lanes.size(); ++l) {
        for (size_t s = 0; s + 1 < lanes[l].steps.size(); ++s) {
          const Step &first = lanes[l].steps[s], &second = lanes[l].steps[s + 1];
          const bool computes = second.action == Action::kReduce || second.action == Action::kFinish;
          if (!computes || !(same_place(first.to, second.from) || same_place(first.to, second.values))) continue;
          ++swaps;
          std::vector<at::Tensor> own = inputs;  // no two runs have the same values
          for (at::Tensor& input : own) input = input * (1 + swaps / 64.0);
          EXPECT_TRUE(is_noticed(choose, SwappedSteps(choose, process, l, s), own))
              << name << ", process " << process << ", lane " << l << ", step " << s;
        }
      }
    }
    EXPECT_GE(swaps, before + 2) << name;
  }
}

// tf_cnn_benchmarks' testVariousAllReduceSpecs, of communicators: each spec gives what the default does. Sums of whole
// numbers are exact.
TEST(AllReduceAlgorithm, VariousAllReduceSpecs) {
  for (const std::string spec : {"pscpu", "psgpu", "pscpu:2k:xring", "psgpu#4", "pscpu:32:psgpu#2:1k:rechd"}) {
    const Communicators group = make_thread_communicators(4, all_reduce_options(spec).choice());
    for (const int64_t elements : {1, 8, 9, 256, 257, 5000}) {
      std::vector<at::Tensor> inputs;
      for (int rank = 0; rank < 4; ++rank) inputs.push_back(at::full({elements}, static_cast<float>(rank + 1)));
      for (const at::Tensor& sum : all_reduced(group, inputs)) EXPECT_TRUE(sum.eq(10).all().item<bool>()) << spec;
    }
  }
}

// tf_cnn_benchmarks' test_grad_aggregation, of communicators: ten gradients of one number on ten replicas, or on eight.
TEST(AllReduceAlgorithm, GradAggregation) {
  for (const auto& [name, ranks] : {std::pair{"pscpu", 10}, {"xring", 10}, {"hierarchical_copy/dgx1", 8}}) {
    const Communicators group = make_thread_communicators(ranks, all_reduce_options(name).choice());
    for (int gradient = 0; gradient < 10; ++gradient) {
      std::vector<at::Tensor> inputs;
      for (int rank = 0; rank < ranks; ++rank)
        inputs.push_back(at::full({1}, static_cast<float>(rank * 10 + gradient)));
      for (const at::Tensor& sum : all_reduced(group, inputs)) {
        EXPECT_EQ(sum.item<float>(), ranks * (ranks - 1) / 2 * 10 + ranks * gradient) << name;
      }
    }
  }
}

// Other collectives are what they are without a spec, and all-reduces of other sizes follow each other.
TEST(AllReduceAlgorithm, ServesAllCollectivesOfAGroup) {
  const AlgorithmChoice choose = all_reduce_options("rechd:1k:xring#2").choice();
  const auto engines = make_engines(2);
  for (const bool threads : {true, false}) {
    const Communicators group =
        threads ? make_thread_communicators(3, choose) : connect(engines, {1, 2}, kLongDeadline, choose);
    expect_none(on_ranks(group, [&](Communicator& self) {
      for (int round = 0; round < 20; ++round) {
        at::Tensor small = at::full({3}, static_cast<float>(self.rank())), large = at::full({300'000}, 1.0F);
        self.all_reduce(small, ReduceOp::kMax);
        const auto pending = self.start_all_reduce(large, ReduceOp::kSum);
        at::Tensor root = at::full({5}, self.rank(), at::kLong);
        pending->wait();
        self.broadcast(root, round % 3);
        self.barrier();
        EXPECT_EQ(small.max().item<float>(), 2);
        EXPECT_EQ(large.min().item<float>() + large.max().item<float>(), 6);
        EXPECT_EQ(root.sum().item<int64_t>(), 5 * (round % 3));
        EXPECT_EQ(self.all_gather(small)[2][0].item<float>(), 2);
      }
    }));
  }
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_algorithms_test
