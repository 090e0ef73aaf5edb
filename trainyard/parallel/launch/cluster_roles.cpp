#include "trainyard/parallel/launch/cluster_roles.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/system/system_random.h"

namespace trainyard::parallel {
namespace {

// Ports of the loopback address that nothing uses now; all different, because they are held until all are found. Linux
// gives connections ports from 32768 on, one of which could take a port in front of the process that it is for.
std::vector<std::string> addresses_here(int count) {
  constexpr int kTries = 100;
  std::mt19937 random(core::system_random());
  std::uniform_int_distribution<int> port(12000, 32767);
  std::vector<core::Socket> held;
  std::vector<std::string> addresses;
  for (int tries = 0; std::ssize(held) < count; ++tries) {
    try {
      held.push_back(core::listen_at("127.0.0.1", static_cast<uint16_t>(port(random))));
      addresses.push_back(fmt::format("127.0.0.1:{}", core::port_of(held.back())));
    } catch (const core::Error&) {
      if (tries >= kTries + count) throw;
    }
  }
  return addresses;
}

// In the order of ranks. A host that is named several times has one row of ports.
std::vector<std::string> addresses_on(const std::vector<HostSlots>& hosts, int count, uint16_t first_port) {
  constexpr int kMostPorts = 65536;
  std::map<std::string, int> used;
  std::vector<std::string> addresses;
  for (const HostSlots& host : in_order_of_ranks(hosts)) {
    for (int slot = 0; slot < host.slots && std::ssize(addresses) < count; ++slot) {
      addresses.push_back(fmt::format("{}:{}", host.name, first_port + used[host.name]++));
    }
  }
  if (std::ssize(addresses) != count) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the hosts have fewer slots than the cluster has processes",
                       .expected = fmt::format("{} slots", count),
                       .actual = fmt::format("{}: {}", addresses.size(), format_hosts(hosts)),
                       .remedy = "add hosts or slots, or start fewer processes"});
  }
  for (const auto& [host, ports] : used) {
    if (first_port + ports <= kMostPorts) continue;
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the processes of a host have no ports from the first one on",
         .where = host,
         .expected = fmt::format("a first port of at most {}, for {} processes", kMostPorts - ports, ports),
         .actual = std::to_string(first_port),
         .remedy = fmt::format("pass --first_port={} or a lower one", kMostPorts - ports)});
  }
  return addresses;
}

}  // namespace

PlacedCluster place_cluster(const ClusterRoles& roles, const std::vector<HostSlots>& hosts, uint16_t first_port) {
  const std::vector<std::string> addresses =
      hosts.empty() ? addresses_here(roles.ranks()) : addresses_on(hosts, roles.ranks(), first_port);
  PlacedCluster placed;
  std::vector<std::string> servers, workers;
  const auto add = [&placed](const char* job, int task, const std::string& name) {
    placed.ranks.push_back({name, {fmt::format("--job_name={}", job), fmt::format("--task_index={}", task)}});
  };
  size_t next = 0;
  for (int i = 0; i < roles.servers; ++i) {
    add("ps", i, fmt::format("ps {}", i));
    servers.push_back(addresses[next++]);
  }
  std::string controller;
  if (roles.controller) {
    add("controller", 0, "controller");
    controller = addresses[next++];
  }
  for (int i = 0; i < roles.workers; ++i) {
    add("worker", i, fmt::format("worker {}", i));
    workers.push_back(addresses[next++]);
  }
  if (!servers.empty()) placed.flags.push_back(fmt::format("--ps_hosts={}", fmt::join(servers, ",")));
  placed.flags.push_back(fmt::format("--worker_hosts={}", fmt::join(workers, ",")));
  if (!controller.empty()) placed.flags.push_back("--controller_host=" + controller);
  return placed;
}

}  // namespace trainyard::parallel
