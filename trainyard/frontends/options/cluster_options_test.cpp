#include "trainyard/frontends/options/cluster_options.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/options/cluster_settings.h"

namespace trainyard::frontends::cluster_options_test {
namespace {

using ::testing::HasSubstr;

ClusterOptions cluster(const std::string& job, int64_t task = 0) {
  ClusterOptions options;
  options.job_name = job;
  options.task_index = task;
  options.ps_hosts = {"10.0.0.1:2222", "10.0.0.2:2222"};
  options.worker_hosts = {"10.0.0.3:2222", "10.0.0.3:2223", "10.0.0.4:2222"};
  return options;
}

std::string problem_of(const ClusterOptions& options, const std::string& update = "parameter_server") {
  return core::problem_of([&] { options.validate(update); });
}

TEST(ClusterOptions, AcceptEachProcessOfACluster) {
  for (const auto& [job, tasks] : {std::pair{"ps", 2}, std::pair{"worker", 3}}) {
    for (int task = 0; task < tasks; ++task) EXPECT_NO_THROW(cluster(job, task).validate("parameter_server"));
    EXPECT_THAT(problem_of(cluster(job, tasks)), HasSubstr("--task_index names no"));
    EXPECT_THAT(problem_of(cluster(job, -1)), HasSubstr("--task_index names no"));
  }
  ClusterOptions controller = cluster("controller");
  controller.ps_hosts.clear();
  controller.controller_host = "10.0.0.1:2222";
  EXPECT_NO_THROW(controller.validate("distributed_all_reduce"));
  EXPECT_NO_THROW(ClusterOptions().validate("horovod"));
}

TEST(ClusterOptions, RefuseWhatIsNoCluster) {
  ClusterOptions options = cluster("worker");
  options.worker_hosts.clear();
  EXPECT_THAT(problem_of(options), HasSubstr("no workers"));
  options = cluster("worker");
  options.ps_hosts.clear();
  EXPECT_THAT(problem_of(options), HasSubstr("needs parameter servers"));
  EXPECT_THAT(problem_of(cluster("ps"), "distributed_all_reduce"), HasSubstr("has no parameter servers"));
  EXPECT_THAT(problem_of(cluster("controller")), HasSubstr("a controller is of"));
  EXPECT_THAT(problem_of(cluster("worker"), "replicated"), HasSubstr("Invalid variable_update in distributed mode"));
  options = cluster("worker");
  options.worker_hosts[1] = options.ps_hosts[0];
  EXPECT_THAT(problem_of(options), HasSubstr("one address"));
}

TEST(ClusterOptions, AreNothingWithoutAJob) {
  for (int member = 0; member < 5; ++member) {
    ClusterOptions options;
    if (member == 0) options.ps_hosts = {"a:1"};
    if (member == 1) options.worker_hosts = {"a:1"};
    if (member == 2) options.task_index = 1;
    if (member == 3) options.cross_replica_sync = false;
    if (member == 4) options.tls_ca = "ca.pem";
    EXPECT_THAT(problem_of(options), HasSubstr("is of --job_name")) << member;
  }
}

TEST(ClusterOptions, TheFlagWithoutAJobIsNamed) {
  using Change = std::function<void(ClusterOptions&)>;
  const std::pair<const char*, Change> changes[] = {
      {"ps_hosts", [](ClusterOptions& o) { o.ps_hosts = {"a:1"}; }},
      {"worker_hosts", [](ClusterOptions& o) { o.worker_hosts = {"a:1"}; }},
      {"controller_host", [](ClusterOptions& o) { o.controller_host = "a:1"; }},
      {"task_index", [](ClusterOptions& o) { o.task_index = 1; }},
      {"nocross_replica_sync", [](ClusterOptions& o) { o.cross_replica_sync = false; }},
      {"tls_cert", [](ClusterOptions& o) { o.tls_cert = "a.pem"; }},
      {"tls_key", [](ClusterOptions& o) { o.tls_key = "a.key"; }},
      {"tls_ca", [](ClusterOptions& o) { o.tls_ca = "ca.pem"; }}};
  for (const auto& [flag, change] : changes) {
    ClusterOptions options;
    change(options);
    EXPECT_EQ(problem_of(options), std::string("--") + flag + " is of --job_name");
  }
}

TEST(ClusterOptions, RefusalsNameTheProcesses) {
  const auto refusal = [](const ClusterOptions& options, const std::string& update) {
    return core::thrown_by([&] { options.validate(update); }).detail();
  };
  ClusterOptions twice = cluster("worker");
  twice.worker_hosts[1] = twice.ps_hosts[0];
  EXPECT_EQ(refusal(twice, "parameter_server").actual, "ps 0 and worker 1 at 10.0.0.1:2222");
  twice = cluster("worker");
  twice.controller_host = twice.worker_hosts[2];
  EXPECT_EQ(refusal(twice, "distributed_all_reduce").actual, "worker 2 and the controller at 10.0.0.4:2222");
  const core::ErrorDetail worker = refusal(cluster("worker", 3), "parameter_server");
  EXPECT_EQ(worker.problem, "--task_index names no worker of the cluster");
  EXPECT_EQ(worker.expected, "a number from 0 to 2");
  EXPECT_EQ(worker.actual, "3");
  EXPECT_EQ(worker.remedy, "--worker_hosts lists 3 of them");
  const core::ErrorDetail server = refusal(cluster("ps", 2), "parameter_server");
  EXPECT_EQ(server.expected, "a number from 0 to 1");
  EXPECT_EQ(server.remedy, "--ps_hosts lists 2 of them");
  EXPECT_EQ(refusal(cluster("controller", 1), "distributed_all_reduce").expected, "a number from 0 to 0");

  EXPECT_EQ(cluster("ps", 1).process_name(), "ps 1 (10.0.0.2:2222)");
  EXPECT_EQ(cluster("worker", 1).process_name(), "worker 1 (10.0.0.3:2223)");
  EXPECT_EQ(cluster("worker", 3).process_name(), "worker 3 (no host)");
  ClusterOptions controller = cluster("controller");
  controller.controller_host = "10.0.0.9:1";
  EXPECT_EQ(controller.process_name(), "controller (10.0.0.9:1)");
}

TEST(ClusterOptions, TakeThreeFilesForTlsOrNone) {
  ClusterOptions options = cluster("worker");
  options.tls_ca = "ca.pem";
  EXPECT_THAT(problem_of(options), HasSubstr("all three or not at all")) << "the last alone";
  options.tls_ca.clear();
  options.tls_key = "a.key";
  EXPECT_THAT(problem_of(options), HasSubstr("all three or not at all")) << "the key alone";
  options.tls_key.clear();
  options.tls_cert = "a.pem";
  EXPECT_THAT(problem_of(options), HasSubstr("all three or not at all"));
  options.tls_key = "a.key";
  options.tls_ca = "ca.pem";
  EXPECT_NO_THROW(options.validate("parameter_server"));
  EXPECT_THAT(problem_of(options, "collective_all_reduce"), HasSubstr("connections of parameter servers"));
}

TEST(ClusterOptions, HostsAreReadAsOtherProgramsWriteThem) {
  EXPECT_EQ(parse_host("node1:2222", "ps_hosts").host, "node1");
  EXPECT_EQ(parse_host("node1:2222", "ps_hosts").port, 2222);
  EXPECT_EQ(parse_host("[::1]:80", "ps_hosts").host, "::1");
  for (const char* wrong : {"", "node1", "node1:", ":80", "node1:0", "node1:65536", "node1:80x", "node1:-1", "[]:80"}) {
    EXPECT_THAT(core::problem_of([&] { static_cast<void>(parse_host(wrong, "ps_hosts")); }),
                HasSubstr("--ps_hosts holds no address"))
        << wrong;
  }
}

DeviceOptions device_options(const ClusterOptions& cluster) {
  DeviceOptions options;
  options.cluster = cluster;
  options.replicas = 2;
  options.rank_deadline = 1.5;
  return options;
}

TEST(ClusterSettings, EachProcessHasItsPlace) {
  const parallel::ProcessRank rank = worker_rank(cluster("worker", 1));
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.size, 3);
  EXPECT_EQ(rank.master_address, "10.0.0.3");
  EXPECT_EQ(rank.master_port, 2222);
  EXPECT_EQ(workers_of_host(cluster("worker", 1)), 2);
  EXPECT_EQ(workers_of_host(cluster("worker", 2)), 1);
  const parallel::ParameterServerOptions server = parameter_server_options(device_options(cluster("ps", 1)), 3);
  EXPECT_EQ(server.address, "10.0.0.2:2222");
  EXPECT_EQ(server.server, 1);
  EXPECT_EQ(server.intra_op_threads, 3);
  EXPECT_EQ(server.deadlines.step.count(), 1500);
  const parallel::ServerGroupOptions group = server_group_options(device_options(cluster("worker", 2)));
  EXPECT_EQ(group.worker, 2);
  EXPECT_EQ(group.addresses.size(), 2U);
  EXPECT_EQ(group.cluster.workers, 3);
  EXPECT_EQ(group.cluster.replicas_per_worker, 2);
}

TEST(ClusterSettings, TheModeOfTheServersIsThatOfTheFlags) {
  DeviceOptions options = device_options(cluster("worker"));
  EXPECT_EQ(server_group_options(options).cluster.mode, parallel::ServerMode::kSynchronous);
  options.staged_vars = true;
  EXPECT_EQ(server_group_options(options).cluster.mode, parallel::ServerMode::kStaged);
  options.cluster.cross_replica_sync = false;
  EXPECT_EQ(server_group_options(options).cluster.mode, parallel::ServerMode::kAsynchronous);
  EXPECT_EQ(server_group_options(options).cluster.reduction, parallel::ServerReduction::kMean);
  options.cluster.sums_gradients = true;
  EXPECT_EQ(server_group_options(options).cluster.reduction, parallel::ServerReduction::kSum);
}

TEST(ClusterSettings, ServersAndWorkersHaveTheFilesAndDeadlinesOfTheFlags) {
  DeviceOptions options = device_options(cluster("worker", 1));
  options.rank_start_deadline = 2.5;
  options.cluster.tls_cert = "a.pem";
  options.cluster.tls_key = "a.key";
  options.cluster.tls_ca = "ca.pem";
  const parallel::ServerGroupOptions group = server_group_options(options);
  EXPECT_EQ(group.deadlines.step.count(), 1500);
  EXPECT_EQ(group.deadlines.start.count(), 2500);
  for (const parallel::TlsFiles& tls : {group.tls, parameter_server_options(options, 0).tls}) {
    EXPECT_EQ(tls.cert, "a.pem");
    EXPECT_EQ(tls.key, "a.key");
    EXPECT_EQ(tls.ca, "ca.pem");
  }
  EXPECT_EQ(parameter_server_options(options, 0).intra_op_threads,
            parameter_server_options(options, std::nullopt).intra_op_threads)
      << "0 is as if nothing was asked for";
  EXPECT_EQ(group.cluster.servers, 2);
  EXPECT_TRUE(has_servers(options));
  options.variable_update = "distributed_replicated";
  EXPECT_TRUE(has_servers(options));
  options.variable_update = "collective_all_reduce";
  EXPECT_FALSE(has_servers(options));
}

TEST(ClusterSettings, TheControllerWaitsLongerThanWorkersForEachOther) {
  DeviceOptions options;
  options.rank_deadline = 1.5;
  options.rank_start_deadline = 30;
  EXPECT_EQ(controller_deadlines(options).step.count(), 2 * 1500 + 5000);
  EXPECT_EQ(controller_deadlines(options).start.count(), 30000);
}

TEST(ClusterSettings, ServersAndWorkersKeepVariablesAsTheFlagsSay) {
  DeviceOptions options = device_options(cluster("worker", 1));
  EXPECT_FALSE(server_group_options(options).cluster.variables_as.has_value());
  options.use_bf16 = options.fp16_vars = true;
  EXPECT_EQ(server_group_options(options).cluster.variables_as, at::kBFloat16);
  EXPECT_EQ(parameter_server_options(options, 1).cluster.variables_as, at::kBFloat16);
  EXPECT_EQ(worker_rank(options.cluster).local_rank, 0);
  const parallel::RankDeadlines usual;
  EXPECT_EQ(rank_deadlines(options).start, usual.start) << "what is not given stays";
}

TEST(ClusterSettings, OneWorkerHasAllStatistics) {
  DeviceOptions options = device_options(cluster("worker"));
  options.sync_batch_norm = true;
  options.cluster.worker_hosts.resize(1);
  EXPECT_NO_THROW(check_cluster(options));
  options.cluster.worker_hosts.push_back("10.0.0.9:2222");
  EXPECT_THROW(check_cluster(options), core::Error);
}

TEST(ClusterSettings, RefuseWhatServersCannotDo) {
  for (int option = 0; option < 3; ++option) {
    DeviceOptions options = device_options(cluster("worker"));
    if (option == 0) options.sync_batch_norm = true;
    if (option == 1) options.gradient_compression = "topk";
    if (option == 2) options.sharded_update = "true";
    EXPECT_THAT(core::message_of([&] { check_cluster(options); }, core::ErrorCode::kUnsupported),
                HasSubstr("parameter servers"))
        << option;
  }
}

}  // namespace
}  // namespace trainyard::frontends::cluster_options_test
