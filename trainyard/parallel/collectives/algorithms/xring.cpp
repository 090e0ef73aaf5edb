// "xring" of an all_reduce_spec: rings that pass the machines in the same order but begin at different replicas of
// each, as TensorFlow's rings of several subchunks, so that they use different connections. More rings than a machine
// has replicas, which TensorFlow refuses, begin at the same replicas again and pass them in the opposite direction.
#include <algorithm>

#include "trainyard/parallel/collectives/algorithms/ring.h"

namespace trainyard::parallel {
namespace {

class RotatedRings final : public RingAlgorithm {
 public:
  std::vector<int> order(const ExchangeMembers& members, int ring, int64_t rings) const override {
    std::vector<int> ranks;
    bool reversed = false;
    for (const std::vector<int>& host : members.by_host) {
      const auto local = static_cast<int64_t>(host.size());
      const int64_t interval = std::max(int64_t{1}, local / rings), offset = ring * interval;
      const auto begin = host.begin() + offset % local;
      ranks.insert(ranks.end(), begin, host.end());
      ranks.insert(ranks.end(), host.begin(), begin);
      reversed = reversed || offset / local % 2 == 1;
    }
    if (reversed) std::reverse(ranks.begin(), ranks.end());
    return ranks;
  }
};

const core::Registration kXring(collective_algorithms(), "xring", std::make_shared<RotatedRings>());

}  // namespace
}  // namespace trainyard::parallel
