// "collective" of an all_reduce_spec: "#n" instances at the same time. Instances are rings that begin n-th parts of the
// ranks apart, every second one in the opposite direction, so that both directions of a connection are busy.
#include <algorithm>

#include "trainyard/parallel/collectives/algorithms/ring.h"

namespace trainyard::parallel {
namespace {

class Collective final : public RingAlgorithm {
 public:
  std::vector<int> order(const ExchangeMembers& members, int ring, int64_t rings) const override {
    std::vector<int> ranks = members.all();
    const auto count = static_cast<int64_t>(ranks.size());
    std::rotate(ranks.begin(), ranks.begin() + ring * std::max(int64_t{1}, count / rings) % count, ranks.end());
    if (ring % 2 == 1) std::reverse(ranks.begin(), ranks.end());
    return ranks;
  }
};

const core::Registration kCollective(collective_algorithms(), "collective", std::make_shared<Collective>());

}  // namespace
}  // namespace trainyard::parallel
