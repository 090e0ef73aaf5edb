// tf_cnn_benchmarks' hierarchical_copy: the ranks form two groups, the first half and the rest. Each group adds its
// values at its root, in the order of the ranks; the first root adds both sums and sends the result to the second, and
// each root sends it to its group. Tensors take turns between roots. With an odd number of ranks, which
// tf_cnn_benchmarks does not support, the second group is the larger one.
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {
namespace {

class HierarchicalCopy : public RankAlgorithm {
 public:
  std::vector<ExchangePart> parts(const ExchangeMembers& members, const CollectiveRequest& request) const override {
    (void)roots(static_cast<int>(members.all().size()), request.number);  // throws where there are none
    std::vector<ExchangePart> parts;
    for (const ElementRange& piece : pieces_of({0, request.elements}, chunk_elements(request.type))) {
      parts.push_back({.ranges = {piece}});
    }
    return parts;
  }

  void exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                const ExchangePart& part) const override {
    const std::vector<int>& ranks = members.all();
    const ElementRange& range = part.ranges[0];
    if (ranks.size() == 1) return plan.finish(ranks[0], range);
    const auto half = ranks.begin() + static_cast<int64_t>(ranks.size() / 2);
    std::vector<int> first_group(ranks.begin(), half), second_group(half, ranks.end());
    const auto [first_position, second_position] = roots(static_cast<int>(ranks.size()), request.number);
    if (static_cast<size_t>(first_position) >= first_group.size()) std::swap(first_group, second_group);
    const int first = ranks[static_cast<size_t>(first_position)], second = ranks[static_cast<size_t>(second_position)];
    plan.reduce(first_group, first, range);
    plan.reduce(second_group, second, range);
    plan.next_phase();
    plan.reduce({first, second}, first, range);
    plan.finish(first, range);
    plan.next_phase();
    plan.spread(first, {second}, range);
    plan.next_phase();
    plan.spread(first, first_group, range);
    plan.spread(second, second_group, range);
    plan.next_phase();
  }

 private:
  // Returns the positions of the first and the second root, which are of different groups.
  virtual std::pair<int, int> roots(int ranks, uint64_t number) const = 0;
};

class Dgx1 final : public HierarchicalCopy {
  std::pair<int, int> roots(int ranks, uint64_t number) const override {
    if (ranks == 1) return {0, 0};
    const int first = static_cast<int>(number % static_cast<uint64_t>(ranks)), half = ranks / 2;
    return {first, first < half ? half + first : (first - half) % half};
  }
};

// Eight GPUs of two cliques, which are connected between 0 and 5 and between 2 and 7.
class GcpV100 final : public HierarchicalCopy {
  std::pair<int, int> roots(int ranks, uint64_t number) const override {
    if (ranks != 8) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "HierarchicalCopy only supports eight devices in gcp_v100",
                         .expected = "8 replicas",
                         .actual = std::to_string(ranks),
                         .remedy = "use --network_topology=dgx1"});
    }
    constexpr std::pair<int, int> kRoots[] = {{0, 5}, {2, 7}, {5, 0}, {7, 2}};
    return kRoots[number % 4];
  }
};

const core::Registration kDgx1(collective_algorithms(), "hierarchical_copy/dgx1", std::make_shared<Dgx1>());
const core::Registration kGcpV100(collective_algorithms(), "hierarchical_copy/gcp_v100", std::make_shared<GcpV100>());

}  // namespace
}  // namespace trainyard::parallel
