// What the tests of all-reduce algorithms share: values, layouts, all-reduces over a group and plans of all processes.
#pragma once

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "trainyard/core/random/random.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel {

inline bool have_equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

// Normal values of a rank, ten times as wide.
inline at::Tensor normal_values(int rank, int64_t elements, at::ScalarType type = at::kFloat) {
  core::RandomStream stream(11, "all-reduce", {static_cast<uint64_t>(rank)});
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) values.mutable_data_ptr<float>()[i] = 10 * stream.normal();
  return values.to(type);
}

inline std::vector<at::Tensor> normal_values_of_all(size_t ranks, int64_t elements, at::ScalarType type = at::kFloat) {
  std::vector<at::Tensor> values;
  for (size_t rank = 0; rank < ranks; ++rank) values.push_back(normal_values(static_cast<int>(rank), elements, type));
  return values;
}

// Returns what an all-reduce of copies of `inputs` gives to each rank.
inline std::vector<at::Tensor> all_reduced(const Communicators& group, const std::vector<at::Tensor>& inputs,
                                           core::ReduceOp op = core::ReduceOp::kSum) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : inputs) results.push_back(input.clone());
  expect_none(on_ranks(
      group, [&](core::Communicator& self) { self.all_reduce(results[static_cast<size_t>(self.rank())], op); }));
  return results;
}

// The options of an algorithm's name: an all_reduce_spec, or "hierarchical_copy/" and a topology.
inline AllReduceOptions all_reduce_options(const std::string& name) {
  const std::string hierarchical = "hierarchical_copy/";
  if (!name.starts_with(hierarchical)) return {.spec = name};
  return {.hierarchical_copy = true, .topology = network_topology(name.substr(hierarchical.size()))};
}

// The layout of processes with these numbers of replicas. `hosts`: the machine of each.
inline RankLayout layout_of(const std::vector<int>& replicas, const std::vector<int>& hosts) {
  RankLayout layout{.first_ranks = {0}, .hosts = hosts};
  for (const int each : replicas) layout.first_ranks.push_back(layout.first_ranks.back() + each);
  return layout;
}

// Processes of one replica each, all on one machine.
inline RankLayout layout_of_ranks(int ranks) {
  const auto count = static_cast<size_t>(ranks);
  return layout_of(std::vector<int>(count, 1), std::vector<int>(count, 0));
}

// Returns the plans of all processes of a layout, by the options of this name.
inline std::vector<CollectivePlan> plans_of(const std::string& name, RankLayout layout, int64_t elements,
                                            at::ScalarType type = at::kFloat, uint64_t number = 0) {
  const AlgorithmChoice choose = all_reduce_options(name).choice();
  std::vector<CollectivePlan> plans;
  for (int process = 0; process < layout.processes(); ++process) {
    layout.process = process;
    const CollectiveRequest request{.kind = CollectiveCall::Kind::kAllReduce,
                                    .elements = elements,
                                    .type = type,
                                    .layout = layout,
                                    .number = number};
    plans.push_back(choose(request).plan(request));
  }
  return plans;
}

// Returns the messages and bytes that each rank sends, one rank a process and machine 0 for all.
inline std::vector<Traffic> traffic_of_ranks(const std::string& name, int ranks, int64_t elements,
                                             at::ScalarType type = at::kFloat, uint64_t number = 0) {
  std::vector<Traffic> sent;
  for (const CollectivePlan& plan : plans_of(name, layout_of_ranks(ranks), elements, type, number)) {
    sent.push_back(traffic_of(plan, type));
  }
  return sent;
}

}  // namespace trainyard::parallel
