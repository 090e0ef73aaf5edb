#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {

const std::vector<int>& ExchangeMembers::all() const {
  if (joined.empty()) {
    for (const std::vector<int>& host : by_host) joined.insert(joined.end(), host.begin(), host.end());
  }
  return joined;
}

bool RankAlgorithm::can(const CollectiveRequest& request) const {
  return request.kind == CollectiveCall::Kind::kAllReduce && request.workers == 1;
}

CollectivePlan RankAlgorithm::plan(const CollectiveRequest& request) const {
  const ExchangeMembers members{request.layout.ranks_by_host()};
  RankPlan plan(request);
  for (const ExchangePart& part : parts(members, request)) {
    plan.begin_part(part.ranges);
    exchange(plan, members, request, part);
  }
  return plan.take();
}

}  // namespace trainyard::parallel
