// The steps of the chain. What it computes is compared with threads in process_communicator_test.cpp.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel::chain_test {
namespace {

using Action = Step::Action;
using Kind = CollectiveCall::Kind;

CollectivePlan plan_of(Kind kind, int process, const std::vector<int>& first_ranks, int64_t elements,
                       at::ScalarType type = at::kFloat, int root = 0) {
  return collective_algorithms().get("chain")->plan({.kind = kind,
                                                     .root = root,
                                                     .elements = elements,
                                                     .type = type,
                                                     .layout = {.process = process, .first_ranks = first_ranks}});
}

Traffic sent_by(const CollectivePlan& plan, at::ScalarType type) {
  Traffic sent;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (step.action != Action::kSend) continue;
      ++sent.messages;
      sent.bytes += step.elements * static_cast<int64_t>(element_bytes(plan, step.from, type));
    }
  }
  return sent;
}

TEST(Chain, AnAllReduceSendsEachElementForwardAndBack) {
  const int64_t chunk = chunk_elements(at::kFloat), elements = 5 * chunk + 1;
  const std::vector<int> first_ranks = {0, 1, 3, 4};
  const auto sent = [&](int process, at::ScalarType type) {
    return sent_by(plan_of(Kind::kAllReduce, process, first_ranks, elements, type), type);
  };
  EXPECT_EQ(sent(0, at::kFloat), (Traffic{6, 4 * elements}));
  EXPECT_EQ(sent(1, at::kFloat), (Traffic{12, 8 * elements}));
  EXPECT_EQ(sent(2, at::kFloat), (Traffic{6, 4 * elements}));
  // 16-bit sums travel forward as float, and results back in 16 bits.
  EXPECT_EQ(sent(0, at::kHalf), (Traffic{6, 4 * elements}));
  EXPECT_EQ(sent(1, at::kHalf), (Traffic{12, 6 * elements}));
  EXPECT_EQ(sent(2, at::kHalf), (Traffic{6, 2 * elements}));
}

TEST(Chain, TheChunksOfAnAllReduceMayHaveAnotherSize) {
  const int64_t elements = (1 << 20) / 4 + 1;
  for (const auto& [chunk_bytes, messages] : {std::pair{64 << 10, 17}, {256 << 10, 5}, {1 << 20, 2}}) {
    const CollectiveRequest request{.kind = Kind::kAllReduce,
                                    .elements = elements,
                                    .layout = {.process = 0, .first_ranks = {0, 1, 2}},
                                    .chunk_bytes = chunk_bytes};
    EXPECT_EQ(traffic_of(collective_algorithms().get("chain")->plan(request), at::kFloat),
              (Traffic{messages, 4 * elements}));
  }
}

TEST(Chain, ABroadcastLeavesTheRootInBothDirections) {
  const std::vector<int> first_ranks = {0, 1, 3, 4};
  const auto messages = [&](int process) {
    return sent_by(plan_of(Kind::kBroadcast, process, first_ranks, 10, at::kFloat, /*root=*/2), at::kFloat).messages;
  };
  EXPECT_EQ(messages(0), 0);
  EXPECT_EQ(messages(1), 2);
  EXPECT_EQ(messages(2), 0);
}

TEST(Chain, AGatherSendsWhatTheNeighboursLack) {
  const std::vector<int> first_ranks = {0, 1, 3, 4};
  const auto bytes = [&](int process) {
    return sent_by(plan_of(Kind::kAllGather, process, first_ranks, 10), at::kFloat).bytes;
  };
  EXPECT_EQ(bytes(0), 1 * 40);
  EXPECT_EQ(bytes(1), (3 + 3) * 40);
  EXPECT_EQ(bytes(2), 1 * 40);
}

// Every message has a receiver of the same bytes, in the order of its stream.
TEST(Chain, WhatOneSendsTheOtherReceives) {
  const std::vector<int> first_ranks = {0, 2, 3, 6};
  for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather}) {
    std::vector<CollectivePlan> plans;
    for (int process = 0; process < 3; ++process) {
      plans.push_back(plan_of(kind, process, first_ranks, 3 * chunk_elements(at::kHalf) + 5, at::kHalf, /*root=*/2));
    }
    const auto messages = [&](int process, Action action, int peer, int stream) {
      std::vector<std::string> found;
      for (const Lane& lane : plans[static_cast<size_t>(process)].lanes) {
        for (const Step& step : lane.steps) {
          if (step.action != action || step.peer != peer || lane.stream != stream) continue;
          const Place& place = action == Action::kSend ? step.from : step.to;
          const size_t width = element_bytes(plans[static_cast<size_t>(process)], place, at::kHalf);
          found.push_back(fmt::format("{} bytes", step.elements * static_cast<int64_t>(width)));
        }
      }
      return found;
    };
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        for (const int stream : {0, 1}) {
          EXPECT_EQ(messages(from, Action::kSend, to, stream), messages(to, Action::kReceive, from, stream))
              << static_cast<int>(kind) << ": " << from << " to " << to;
        }
      }
    }
  }
}

// A chunk of the ring of arrivals is received only when its last sum has been made, and a result only when the partial
// sum in its place has left.
TEST(Chain, WaitsForTheMemoryThatItOverwrites) {
  const CollectivePlan plan = plan_of(Kind::kAllReduce, 1, {0, 1, 2, 3}, 6 * chunk_elements(at::kFloat));
  ASSERT_EQ(plan.lanes.size(), 6U);
  const Lane &from_before = plan.lanes[0], &sums = plan.lanes[1], &to_behind = plan.lanes[2],
             &from_behind = plan.lanes[3], &to_before = plan.lanes[5];
  EXPECT_TRUE(from_before.early && sums.early && to_behind.early);
  EXPECT_FALSE(from_behind.early || to_before.early);
  EXPECT_EQ(from_before.stream, to_behind.stream);
  EXPECT_EQ(from_behind.stream, to_before.stream);
  EXPECT_NE(from_before.stream, to_before.stream) << "partial sums and results";
  for (int64_t i = 0; i < 6; ++i) {
    const auto after = [i](const Lane& lane) {
      const After& first = lane.steps[static_cast<size_t>(i)].after[0];
      return fmt::format("lane {}, {}", first.lane, first.steps);
    };
    EXPECT_EQ(after(from_before), fmt::format("lane 1, {}", i - 3));
    EXPECT_EQ(after(sums), fmt::format("lane 0, {}", i + 1));
    EXPECT_EQ(after(to_behind), fmt::format("lane 1, {}", i + 1));
    EXPECT_EQ(after(from_behind), fmt::format("lane 2, {}", i + 1));
    EXPECT_EQ(after(to_before), fmt::format("lane 3, {}", i + 1));
  }
}

}  // namespace
}  // namespace trainyard::parallel::chain_test
