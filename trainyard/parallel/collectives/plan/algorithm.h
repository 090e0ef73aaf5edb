// An algorithm for collectives: the steps of each process for a number of ranks and a size. An algorithm is one source
// in collectives/algorithms that registers itself, and one test:
//
//   class Ring final : public CollectiveAlgorithm {
//     bool can(const CollectiveRequest& request) const override { return request.kind == Kind::kAllReduce; }
//     CollectivePlan plan(const CollectiveRequest& request) const override { ... }
//   };
//   const core::Registration kRing(collective_algorithms(), "ring", std::make_shared<Ring>());
#pragma once

#include <functional>
#include <memory>

#include "trainyard/core/base/registry.h"
#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel {

// Any thread may call the methods.
class CollectiveAlgorithm {
 public:
  virtual ~CollectiveAlgorithm() = default;
  // Returns whether plan() supports this request. The result is the same on all processes.
  virtual bool can(const CollectiveRequest& request) const = 0;
  // Returns the steps of request.layout.process, or of its worker. The plans of all processes must fit each other: each
  // message has a receiver of the same bytes, in the order of its stream.
  virtual CollectivePlan plan(const CollectiveRequest& request) const = 0;
};

// Returns the algorithms by name. Each source registers its own.
core::Registry<std::shared_ptr<const CollectiveAlgorithm>>& collective_algorithms();

// Returns the algorithm for a request; the reference stays valid. All processes must get the same one, so it depends on
// nothing that differs between them.
using AlgorithmChoice = std::function<const CollectiveAlgorithm&(const CollectiveRequest& request)>;

}  // namespace trainyard::parallel
