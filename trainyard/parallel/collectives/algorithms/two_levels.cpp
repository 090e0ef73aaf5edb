// "pscpu/..." of an all_reduce_spec: the ranks of each machine add their values at its first rank, in their order, the
// first ranks all-reduce these sums by the second algorithm, and each gives the result to the ranks of its machine. As
// build_shuffle_then_shuffle() and build_shuffle_then_ring() of tensorflow/python/distribute/v1/all_reduce.py.
#include <string>
#include <utility>

#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {
namespace {

class TwoLevels final : public CollectiveAlgorithm {
 public:
  explicit TwoLevels(std::string between) : between_(std::move(between)) {}

  bool can(const CollectiveRequest& request) const override { return algorithm()->can(request); }

  CollectivePlan plan(const CollectiveRequest& request) const override {
    const std::vector<std::vector<int>> hosts = request.layout.ranks_by_host();
    ExchangeMembers firsts;
    for (const std::vector<int>& host : hosts) firsts.by_host.push_back({host[0]});
    const std::shared_ptr<const RankAlgorithm> between = algorithm();
    RankPlan plan(request);
    for (const ExchangePart& part : between->parts(firsts, request)) {
      plan.begin_part(part.ranges);
      for (const ElementRange& range : part.ranges) {
        for (const std::vector<int>& host : hosts) plan.reduce(host, host[0], range);
      }
      plan.next_phase();
      between->exchange(plan, firsts, request, part);
      plan.next_phase();
      for (const ElementRange& range : part.ranges) {
        for (const std::vector<int>& host : hosts) plan.spread(host[0], host, range);
      }
      plan.next_phase();
    }
    return plan.take();
  }

 private:
  // By name, since sources register their algorithms in any order.
  std::shared_ptr<const RankAlgorithm> algorithm() const {
    return std::dynamic_pointer_cast<const RankAlgorithm>(collective_algorithms().get(between_));
  }

  const std::string between_;
};

const core::Registration kPscpuPscpu(collective_algorithms(), "pscpu/pscpu", std::make_shared<TwoLevels>("pscpu"));
const core::Registration kPscpuXring(collective_algorithms(), "pscpu/xring", std::make_shared<TwoLevels>("xring"));
const core::Registration kPscpuRechd(collective_algorithms(), "pscpu/rechd", std::make_shared<TwoLevels>("rechd"));

}  // namespace
}  // namespace trainyard::parallel
