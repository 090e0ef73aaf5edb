// "pscpu" of an all_reduce_spec: tensors are reduced on the machines' CPUs, which the process of a machine's first rank
// stands for. Tensors take turns: each goes to one CPU, or with "#n" to n of them.
#include "trainyard/parallel/collectives/algorithms/shuffle.h"

namespace trainyard::parallel {
namespace {

class Pscpu final : public ShuffleAlgorithm {
 public:
  std::vector<int> places(const ExchangeMembers& members, const CollectiveRequest& request) const override {
    std::vector<int> cpus;
    for (const std::vector<int>& host : members.by_host) cpus.push_back(host[0]);
    return group_of_places(cpus, request.shards, request.number);
  }
};

const core::Registration kPscpu(collective_algorithms(), "pscpu", std::make_shared<Pscpu>());

}  // namespace
}  // namespace trainyard::parallel
