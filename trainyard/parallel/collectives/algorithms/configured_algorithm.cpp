#include "trainyard/parallel/collectives/algorithms/configured_algorithm.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"

namespace trainyard::parallel {
namespace {

class ConfiguredAlgorithm final : public CollectiveAlgorithm {
 public:
  explicit ConfiguredAlgorithm(ConfiguredRange settings)
      : settings_(std::move(settings)), algorithm_(collective_algorithms().get(settings_.algorithm)) {}

  const std::optional<int64_t>& limit_bytes() const { return settings_.limit_bytes; }
  bool can(const CollectiveRequest& request) const override { return algorithm_->can(request); }
  CollectivePlan plan(const CollectiveRequest& request) const override {
    CollectiveRequest configured = request;
    configured.shards = settings_.shards;
    configured.chunk_bytes = settings_.chunk_bytes;
    if (settings_.in_rank_order) configured.layout.hosts.clear();
    CollectivePlan plan = algorithm_->plan(configured);
    if (settings_.wire) plan.wire = *settings_.wire;
    return plan;
  }

 private:
  const ConfiguredRange settings_;
  const std::shared_ptr<const CollectiveAlgorithm> algorithm_;
};

using Ranges = std::vector<std::shared_ptr<const ConfiguredAlgorithm>>;

const CollectiveAlgorithm& choose_range(const Ranges& ranges, const CollectiveRequest& request) {
  if (request.kind != CollectiveCall::Kind::kAllReduce) return choose_algorithm(request);
  // A request of no elements has no size: it asks whether the layout fits all ranges.
  if (request.elements == 0) {
    for (const auto& range : ranges) (void)range->plan(request);
  }
  const int64_t bytes = request.elements * static_cast<int64_t>(c10::elementSize(request.type));
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const auto& range) {
    return !range->limit_bytes() || bytes <= *range->limit_bytes();
  });
  return (*found)->can(request) ? static_cast<const CollectiveAlgorithm&>(**found) : choose_algorithm(request);
}

}  // namespace

AlgorithmChoice choice_by_size(const std::vector<ConfiguredRange>& ranges) {
  Ranges configured;
  for (const ConfiguredRange& range : ranges) configured.push_back(std::make_shared<ConfiguredAlgorithm>(range));
  return [ranges = std::move(configured)](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
    return choose_range(ranges, request);
  };
}

}  // namespace trainyard::parallel
