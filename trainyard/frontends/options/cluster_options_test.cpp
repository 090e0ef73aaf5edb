#include "trainyard/frontends/options/cluster_options.h"

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

TEST(ClusterOptions, TakeThreeFilesForTlsOrNone) {
  ClusterOptions options = cluster("worker");
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
