// What a process of a cluster (cluster_options.h) is made with: its place among the workers, its part of the parameter
// servers, and how long the processes wait for each other.
#pragma once

#include "trainyard/frontends/options/device_options.h"
#include "trainyard/parallel/process_group/liveness.h"
#include "trainyard/parallel/process_group/process_rank.h"
#include "trainyard/parallel/servers/server_options.h"

namespace trainyard::frontends {

// Returns --rank_deadline and --rank_start_deadline, or their defaults.
[[nodiscard]] parallel::RankDeadlines rank_deadlines(const DeviceOptions& options);
// Returns those of the controller of distributed_all_reduce. The workers find out among themselves which of them makes
// no progress, and are to be heard first: the controller waits for all of them, and cannot tell which one it is.
[[nodiscard]] parallel::RankDeadlines controller_deadlines(const DeviceOptions& options);

// Returns whether parameter servers hold the values.
[[nodiscard]] bool has_servers(const DeviceOptions& options);

// Returns this worker's rank among the workers, which meet at the address of worker 0.
[[nodiscard]] parallel::ProcessRank worker_rank(const ClusterOptions& cluster);
// Returns how many processes of the cluster are on this one's host, whose cores they share. Servers do not count: they
// compute while workers wait.
[[nodiscard]] int workers_of_host(const ClusterOptions& cluster);

// Return the options of this process's server, or of this worker's side of all servers.
[[nodiscard]] parallel::ParameterServerOptions parameter_server_options(const DeviceOptions& options,
                                                                        std::optional<int> intra_op_threads = {});
[[nodiscard]] parallel::ServerGroupOptions server_group_options(const DeviceOptions& options);

// Throws what validate() of the cluster throws, and kUnsupported for options that do not work with servers: those that
// need the gradients of a whole model in one place, or batches of all workers in one norm.
void check_cluster(const DeviceOptions& options);

}  // namespace trainyard::frontends
