// The processes of a launch that has parameter servers or a controller: which of the ranks is which, and where each
// listens. Ranks are parameter servers first, then the controller, then workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/parallel/launch/hosts.h"

namespace trainyard::parallel {

struct ClusterRoles {
  int servers = 0, workers = 0;
  bool controller = false;
  int ranks() const { return servers + workers + (controller ? 1 : 0); }
};

// One rank's name in messages, "ps 0", "controller" or "worker 1", and the flags that tell it so.
struct ClusterRank {
  std::string name;
  std::vector<std::string> flags;
};

struct PlacedCluster {
  std::vector<ClusterRank> ranks;
  std::vector<std::string> flags;  // of all ranks: the lists of hosts
};

// Places the ranks on the hosts in their order, as many on each as it has slots, at ports from `first_port`. No hosts:
// all on this machine, at free ports of the loopback address. Throws kInvalidArgument for fewer slots than ranks, and
// for ports above 65535.
PlacedCluster place_cluster(const ClusterRoles& roles, const std::vector<HostSlots>& hosts, uint16_t first_port);

}  // namespace trainyard::parallel
