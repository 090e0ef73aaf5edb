// An all-reduce among ranks that each send, combine and receive (rank_plan.h). The tensor is cut into parts, which are
// exchanged concurrently and each in the same way.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/parallel/collectives/algorithms/rank_plan.h"
#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

// The ranks of an exchange, by machine.
struct ExchangeMembers {
  std::vector<std::vector<int>> by_host;

  // Returns all of them, machine by machine. Algorithms ask for each of thousands of parts, so they are joined once.
  // One thread uses them.
  const std::vector<int>& all() const;

  mutable std::vector<int> joined{};  // what all() has returned
};

// Elements that are exchanged together.
struct ExchangePart {
  std::vector<ElementRange> ranges;
  int variant = 0;  // what the algorithm distinguishes its parts by: a ring, a place
};

class RankAlgorithm : public CollectiveAlgorithm {
 public:
  // All-reduces of processes.
  bool can(const CollectiveRequest& request) const override;
  // Returns the plan of an exchange among all ranks.
  CollectivePlan plan(const CollectiveRequest& request) const override;

  // Returns the parts of the tensor. Throws kInvalidArgument when the members do not allow request.shards.
  virtual std::vector<ExchangePart> parts(const ExchangeMembers& members, const CollectiveRequest& request) const = 0;
  // Adds the phases in which members combine their values of a part, and at whose end each of them has its result.
  virtual void exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                        const ExchangePart& part) const = 0;
};

}  // namespace trainyard::parallel
