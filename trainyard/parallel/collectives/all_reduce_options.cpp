#include "trainyard/parallel/collectives/all_reduce_options.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::array<const char*, 2> kTopologies = {"dgx1", "gcp_v100"};

bool is_nccl(const std::string& algorithm) {
  return algorithm == "nccl" || algorithm.starts_with("nccl/");
}

// An algorithm with its shards and its wire type.
class ConfiguredAlgorithm final : public CollectiveAlgorithm {
 public:
  ConfiguredAlgorithm(std::shared_ptr<const CollectiveAlgorithm> algorithm, int64_t shards,
                      std::optional<at::ScalarType> wire)
      : algorithm_(std::move(algorithm)), shards_(shards), wire_(wire) {}

  bool can(const CollectiveRequest& request) const override { return algorithm_->can(request); }
  CollectivePlan plan(const CollectiveRequest& request) const override {
    CollectiveRequest sharded = request;
    sharded.shards = shards_;
    CollectivePlan plan = algorithm_->plan(sharded);
    if (wire_) plan.wire = *wire_;
    return plan;
  }

 private:
  const std::shared_ptr<const CollectiveAlgorithm> algorithm_;
  const int64_t shards_;
  const std::optional<at::ScalarType> wire_;
};

struct ConfiguredRange {
  std::optional<int64_t> limit_bytes;
  std::shared_ptr<const CollectiveAlgorithm> algorithm;
};

const CollectiveAlgorithm& choose_range(const std::vector<ConfiguredRange>& ranges, const CollectiveRequest& request) {
  if (request.kind != CollectiveCall::Kind::kAllReduce) return choose_algorithm(request);
  // A request of no elements has no size: it asks whether the layout fits the spec.
  if (request.elements == 0) {
    for (const ConfiguredRange& range : ranges) (void)range.algorithm->plan(request);
  }
  const int64_t bytes = request.elements * static_cast<int64_t>(c10::elementSize(request.type));
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const ConfiguredRange& range) {
    return !range.limit_bytes || bytes <= *range.limit_bytes;
  });
  return found->algorithm->can(request) ? *found->algorithm : choose_algorithm(request);
}

}  // namespace

std::string_view network_topology_name(NetworkTopology topology) {
  return core::enum_name<NetworkTopology::kGcpV100>(topology, {"dgx1", "gcp_v100"});
}

NetworkTopology network_topology(std::string_view name) {
  return core::enum_value<NetworkTopology>("network topology", name, kTopologies);
}

void AllReduceOptions::validate() const {
  if (!spec.empty()) (void)parse_all_reduce_spec(spec);
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
  if (spec.empty()) return false;
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
  const auto add = [&](const std::string& name, int64_t shards, std::optional<int64_t> limit) {
    ranges.push_back({limit, std::make_shared<ConfiguredAlgorithm>(collective_algorithms().get(name), shards, wire)});
  };
  if (!spec.empty()) {
    for (const AllReduceRange& range : parse_all_reduce_spec(spec)) {
      add(range.algorithm, range.shards, range.limit_bytes);
    }
  } else if (hierarchical_copy) {
    add(fmt::format("hierarchical_copy/{}", network_topology_name(topology)), 1, {});
  } else {
    add("chain", 1, {});
  }
  return [ranges = std::move(ranges)](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
    return choose_range(ranges, request);
  };
}

}  // namespace trainyard::parallel
