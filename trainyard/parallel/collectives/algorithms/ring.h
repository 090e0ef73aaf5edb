// The all-reduce in a ring: each rank combines what comes from the rank before with its own values and sends it to the
// next one, n - 1 times, until it has the sum of one segment; then the sums travel around once more. As
// build_ring_all_reduce() of tensorflow/python/distribute/v1/all_reduce.py: the same segments, added in the same order.
#pragma once

#include <vector>

#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {

// The base of algorithms of one or more rings, each of which exchanges its share of each segment. They differ in the
// order of the ranks in their rings.
class RingAlgorithm : public RankAlgorithm {
 public:
  std::vector<ExchangePart> parts(const ExchangeMembers& members, const CollectiveRequest& request) const override;
  void exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                const ExchangePart& part) const override;

  // Returns the members in the order in which ring number `ring` of `rings` passes them.
  virtual std::vector<int> order(const ExchangeMembers& members, int ring, int64_t rings) const = 0;
};

}  // namespace trainyard::parallel
