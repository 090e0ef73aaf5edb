// "psgpu" of an all_reduce_spec: tensors are reduced where the replicas are. Tensors take turns: each goes to one
// replica, or with "#n" to n of them, of different machines where there are that many.
#include <algorithm>

#include "trainyard/parallel/collectives/algorithms/shuffle.h"

namespace trainyard::parallel {
namespace {

class Psgpu final : public ShuffleAlgorithm {
 public:
  std::vector<int> places(const ExchangeMembers& members, const CollectiveRequest& request) const override {
    size_t most = 0;
    for (const std::vector<int>& host : members.by_host) most = std::max(most, host.size());
    std::vector<int> replicas;
    for (size_t i = 0; i < most; ++i) {
      for (const std::vector<int>& host : members.by_host) {
        if (i < host.size()) replicas.push_back(host[i]);
      }
    }
    return group_of_places(replicas, request.shards, request.number);
  }
};

const core::Registration kPsgpu(collective_algorithms(), "psgpu", std::make_shared<Psgpu>());

}  // namespace
}  // namespace trainyard::parallel
