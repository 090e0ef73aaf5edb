#include "trainyard/frontends/options/cluster_settings.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/device_settings.h"

namespace trainyard::frontends {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

parallel::ClusterOptions cluster_of(const DeviceOptions& options) {
  const ClusterOptions& asked = options.cluster;
  parallel::ClusterOptions cluster{.workers = static_cast<int>(asked.worker_hosts.size()),
                                   .servers = static_cast<int>(asked.ps_hosts.size()),
                                   .replicas_per_worker = static_cast<int>(options.replicas),
                                   .variables_as = variables_of(options)};
  if (asked.sums_gradients) cluster.reduction = parallel::ServerReduction::kSum;
  if (options.staged_vars) cluster.mode = parallel::ServerMode::kStaged;
  if (!asked.cross_replica_sync) cluster.mode = parallel::ServerMode::kAsynchronous;
  return cluster;
}

parallel::TlsFiles tls_of(const ClusterOptions& cluster) {
  return {.cert = cluster.tls_cert, .key = cluster.tls_key, .ca = cluster.tls_ca};
}

}  // namespace

parallel::RankDeadlines rank_deadlines(const DeviceOptions& options) {
  parallel::RankDeadlines deadlines;
  if (options.rank_deadline) deadlines.step = milliseconds(*options.rank_deadline);
  if (options.rank_start_deadline) deadlines.start = milliseconds(*options.rank_start_deadline);
  return deadlines;
}

parallel::RankDeadlines controller_deadlines(const DeviceOptions& options) {
  parallel::RankDeadlines deadlines = rank_deadlines(options);
  deadlines.step = 2 * deadlines.step + std::chrono::seconds(5);
  return deadlines;
}

bool has_servers(const DeviceOptions& options) {
  return !options.cluster.job_name.empty() &&
         (options.variable_update == "parameter_server" || options.variable_update == "distributed_replicated");
}

parallel::ProcessRank worker_rank(const ClusterOptions& cluster) {
  const HostAddress first = parse_host(cluster.worker_hosts.at(0), "worker_hosts");
  return {.rank = static_cast<int>(cluster.task_index),
          .size = static_cast<int>(cluster.worker_hosts.size()),
          .local_rank = 0,
          .master_address = first.host,
          .master_port = first.port};
}

int workers_of_host(const ClusterOptions& cluster) {
  const std::string own =
      parse_host(cluster.worker_hosts.at(static_cast<size_t>(cluster.task_index)), "worker_hosts").host;
  return static_cast<int>(
      std::count_if(cluster.worker_hosts.begin(), cluster.worker_hosts.end(),
                    [&own](const std::string& host) { return parse_host(host, "worker_hosts").host == own; }));
}

parallel::ParameterServerOptions parameter_server_options(const DeviceOptions& options,
                                                          std::optional<int> intra_op_threads) {
  parallel::ParameterServerOptions server{
      .cluster = cluster_of(options),
      .server = static_cast<int>(options.cluster.task_index),
      .address = options.cluster.ps_hosts.at(static_cast<size_t>(options.cluster.task_index)),
      .tls = tls_of(options.cluster),
      .deadlines = rank_deadlines(options)};
  if (intra_op_threads && *intra_op_threads > 0) server.intra_op_threads = *intra_op_threads;
  return server;
}

parallel::ServerGroupOptions server_group_options(const DeviceOptions& options) {
  return {.cluster = cluster_of(options),
          .worker = static_cast<int>(options.cluster.task_index),
          .addresses = options.cluster.ps_hosts,
          .tls = tls_of(options.cluster),
          .deadlines = rank_deadlines(options)};
}

void check_cluster(const DeviceOptions& options) {
  options.cluster.validate(options.variable_update);
  if (!has_servers(options)) return;
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kUnsupported, {.problem = problem, .remedy = remedy});
  };
  refuse(options.sync_batch_norm && options.cluster.worker_hosts.size() > 1,
         "--sync_batch_norm does not work with parameter servers: workers exchange no statistics",
         "leave it out, or use --variable_update=collective_all_reduce");
  refuse(options.gradient_compression != "none",
         "--gradient_compression does not work with parameter servers: workers push whole gradients",
         "leave it out, or use --variable_update=collective_all_reduce");
  refuse(options.sharded_update == "true",
         "--sharded_update=true does not work with parameter servers, which share the parameters among themselves",
         "leave it out");
}

}  // namespace trainyard::frontends
