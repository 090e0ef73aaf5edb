#include "trainyard/parallel/collectives/all_reduce_options.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/algorithms/configured_algorithm.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::array<const char*, 2> kTopologies = {"dgx1", "gcp_v100"};

bool is_nccl(const std::string& algorithm) {
  return algorithm == "nccl" || algorithm.starts_with("nccl/");
}

}  // namespace

std::string_view network_topology_name(NetworkTopology topology) {
  return core::enum_name<NetworkTopology::kGcpV100>(topology, {"dgx1", "gcp_v100"});
}

NetworkTopology network_topology(std::string_view name) {
  return core::enum_value<NetworkTopology>("network topology", name, kTopologies);
}

void AllReduceOptions::validate() const {
  if (!spec.empty() && !is_auto()) (void)parse_all_reduce_spec(spec);
  if (!spec.empty() && hierarchical_copy) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "all_reduce_spec and hierarchical_copy exclude each other",
                                              .actual = fmt::format("all_reduce_spec={}", spec),
                                              .remedy = "give one of them"});
  }
  if (wire && *wire != at::kBFloat16 && *wire != at::kHalf) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "numbers cannot travel in this type",
                                              .expected = "bfloat16 or half",
                                              .actual = c10::toString(*wire)});
  }
}

bool AllReduceOptions::uses_nccl() const {
  validate();
  if (spec.empty() || is_auto()) return false;
  const std::vector<AllReduceRange> ranges = parse_all_reduce_spec(spec);
  return std::any_of(ranges.begin(), ranges.end(),
                     [](const AllReduceRange& range) { return is_nccl(range.algorithm); });
}

AlgorithmChoice AllReduceOptions::choice() const {
  if (uses_nccl()) {
    std::vector<std::string> others = all_reduce_algorithms();
    std::erase_if(others, is_nccl);
    throw Error(ErrorCode::kUnsupported, {.problem = fmt::format("all_reduce_spec ({}) is for GPUs", spec),
                                          .expected = fmt::format("on CPUs one of {}", fmt::join(others, ", "))});
  }
  if (is_default()) return choose_algorithm;
  std::vector<ConfiguredRange> ranges;
  if (!spec.empty() && !is_auto()) {
    for (const AllReduceRange& range : parse_all_reduce_spec(spec)) {
      ranges.push_back(
          {.algorithm = range.algorithm, .limit_bytes = range.limit_bytes, .shards = range.shards, .wire = wire});
    }
  } else if (hierarchical_copy) {
    ranges.push_back({.algorithm = fmt::format("hierarchical_copy/{}", network_topology_name(topology)), .wire = wire});
  } else {
    ranges.push_back({.algorithm = "chain", .wire = wire});
  }
  return choice_by_size(ranges);
}

}  // namespace trainyard::parallel
