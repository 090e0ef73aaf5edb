// Replicas of one process, which see each other's memory. Each worker reduces a slice of the elements for all, so the
// work is spread over the threads, and each element has the same bits on every rank: values are combined in rank order.
#include <algorithm>

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {
namespace {

using Action = Step::Action;
using Kind = CollectiveCall::Kind;

class Slices final : public CollectiveAlgorithm {
 public:
  bool can(const CollectiveRequest& request) const override { return request.workers > 1; }

  CollectivePlan plan(const CollectiveRequest& request) const override {
    CollectivePlan plan;
    if (request.elements == 0 || request.kind == Kind::kBarrier) return plan;
    std::vector<Step>& steps = plan.lanes.emplace_back().steps;
    if (request.kind == Kind::kAllReduce) {
      // Slices of whole cache lines, which no two workers write to.
      constexpr int64_t kLine = 64;
      const int64_t share = (request.elements + request.workers - 1) / request.workers;
      const int64_t slice = (share + kLine - 1) / kLine * kLine, begin = request.worker * slice;
      const int64_t end = std::min(request.elements, begin + slice);
      if (begin < end) {
        steps.push_back({.action = Action::kReduce,
                         .elements = end - begin,
                         .values = Place::all_replicas(begin),
                         .to = Place::all_replicas(begin)});
      }
    } else if (request.kind == Kind::kBroadcast) {
      steps.push_back({.elements = request.elements,
                       .from = Place::replica(request.root, 0),
                       .to = Place::replica(request.worker, 0)});
    } else {
      for (int rank = 0; rank < request.layout.ranks(); ++rank) {
        steps.push_back({.elements = request.elements,
                         .from = Place::replica(rank, 0),
                         .to = Place::gathered(rank * request.elements)});
      }
    }
    return plan;
  }
};

const core::Registration kSlices(collective_algorithms(), "slices", std::make_shared<Slices>());

}  // namespace
}  // namespace trainyard::parallel
