// The processes of a cluster that train tf_cnn_benchmarks' oracle (train/testing/variable_update_oracle.h) with every
// optimizer, for tests/processes/cluster_test.py:
//
//   trainyard_cluster_check ps 0 127.0.0.1:5000 127.0.0.1:5001,127.0.0.1:5002 parameter_server 2
//   trainyard_cluster_check worker 0 127.0.0.1:5000 127.0.0.1:5001,127.0.0.1:5002 parameter_server 2    2 replicas each
//
// Each worker ends with 1 where losses are not those of the definition, and says which. Modes: parameter_server,
// distributed_replicated; staged, whose losses are those of the values of one update before; relaxed, whose updates are
// those of the gradients of one step before; all_reduce, without servers, over TCP. A seventh argument takes sgd
// alone: "losses" prints them, a line "step loss" each; "fp16" computes in 16 bits, within the original's bounds.
#include <bit>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/tcp/tcp_transport.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/train/testing/variable_update_oracle.h"

namespace {

using namespace trainyard;

constexpr auto kDeadline = std::chrono::seconds(60);

struct Process {
  frontends::DeviceOptions options;
  train::OracleLayout layout;
  bool staged = false, relaxed = false, has_servers = true, prints = false, fp16 = false;
  std::shared_ptr<parallel::ProcessGroup> workers{};
  std::shared_ptr<parallel::ProcessEngine> exchange{};

  int steps() const { return layout.all() > 2 ? 3 : 4; }
  std::vector<train::OracleOptimizer> optimizers() const {
    if (staged || relaxed || prints || fp16) {
      train::OracleOptimizer sgd = train::oracle_optimizer("sgd");
      sgd.options.delayed = relaxed;
      return {sgd};
    }
    std::vector<train::OracleOptimizer> all = train::oracle_optimizers();
    // Norms of a parameter are those of all of it, which several servers share.
    if (options.cluster.ps_hosts.size() > 1) {
      std::erase_if(all, [](const auto& each) { return each.name == "lars" || each.name == "lamb"; });
    }
    return all;
  }
};

Process read_process(char** arguments, int count) {
  Process process;
  process.options.gpu = false;
  process.options.rank_start_deadline = process.options.rank_deadline = 60;
  frontends::ClusterOptions& cluster = process.options.cluster;
  cluster.job_name = arguments[1];
  cluster.task_index = std::stoi(arguments[2]);
  cluster.ps_hosts = core::split_list(arguments[3]);
  cluster.worker_hosts = core::split_list(arguments[4]);
  const std::string mode = arguments[5];
  process.staged = mode == "staged";
  process.relaxed = mode == "relaxed";
  process.has_servers = mode != "all_reduce";
  process.prints = count > 7 && std::string(arguments[7]) == "losses";
  process.fp16 = count > 7 && std::string(arguments[7]) == "fp16";
  if (process.fp16) process.layout.dtype = at::kHalf;
  process.options.replicas = std::stoi(arguments[6]);
  process.options.staged_vars = process.staged;
  process.options.variable_update = process.staged    ? "parameter_server"
                                    : process.relaxed ? "distributed_replicated"
                                                      : mode;
  if (!process.has_servers) process.options.variable_update = "distributed_all_reduce";
  process.layout.mode = process.staged ? "staged_parameter_server" : process.options.variable_update;
  process.layout.replicas.assign(cluster.worker_hosts.size(), static_cast<int>(process.options.replicas));
  return process;
}

// Collective: the shares of all workers, in their order.
std::vector<train::OracleShare> all_shares(const train::OracleShare& own, parallel::ProcessGroup& workers) {
  core::BodyWriter body;
  for (const auto* values : {&own.base, &own.beside}) {
    for (const double value : *values) body.number(std::bit_cast<int64_t>(value));
  }
  std::vector<train::OracleShare> shares;
  for (const std::string& text : workers.gather("losses", body.take())) {
    core::BodyReader reader(text);
    train::OracleShare share;
    for (auto* values : {&share.base, &share.beside}) {
      for (size_t i = 0; i < own.base.size(); ++i) values->push_back(std::bit_cast<double>(reader.number()));
    }
    shares.push_back(share);
  }
  return shares;
}

// The losses of sgd by definition where step k has the values of update k - 1: w[k + 1] = w[k] - gradient(w[k - 1]) /
// 16 with the gradient of the mean over all replicas, and w[-1] = w[0].
train::OracleLosses staged_losses(const train::OracleLayout& layout, int steps) {
  constexpr double kSixteenth = 1.0 / 16;
  train::OracleLosses losses;
  double a = 1, b = 2, before_a = 1, before_b = 2;
  for (int step = 0; step < steps; ++step) {
    const int numbers = 2 * layout.all();
    const double mean = -1.0 + numbers * step + (numbers - 1) / 2.0;  // of numbers from -1 on
    losses.base.push_back(mean * before_a * before_b);
    losses.total.push_back(losses.base.back() + kSixteenth * (before_a * before_a + before_b * before_b) / 2);
    const double of_a = mean * before_b + kSixteenth * before_a, of_b = mean * before_a + kSixteenth * before_b;
    before_a = a;
    before_b = b;
    a -= kSixteenth * of_a;
    b -= kSixteenth * of_b;
  }
  return losses;
}

// The same where step k applies the gradient of step k - 1: w[k + 1] = w[k] - gradient(w[k - 1]) / 16, and the first
// step applies none. The losses are those of the newest values, unlike those of staged ones.
train::OracleLosses relaxed_losses(const train::OracleLayout& layout, int steps) {
  constexpr double kSixteenth = 1.0 / 16;
  train::OracleLosses losses;
  double a = 1, b = 2, delayed_a = 0, delayed_b = 0;
  for (int step = 0; step < steps; ++step) {
    const int numbers = 2 * layout.all();
    const double mean = -1.0 + numbers * step + (numbers - 1) / 2.0;
    losses.base.push_back(mean * a * b);
    losses.total.push_back(losses.base.back() + kSixteenth * (a * a + b * b) / 2);
    const double of_a = mean * b + kSixteenth * a, of_b = mean * a + kSixteenth * b;
    a -= kSixteenth * delayed_a;
    b -= kSixteenth * delayed_b;
    delayed_a = of_a;
    delayed_b = of_b;
  }
  return losses;
}

train::OracleLosses defined_losses(const Process& process, const train::OracleOptimizer& optimizer) {
  if (process.staged) return staged_losses(process.layout, process.steps());
  if (process.relaxed) return relaxed_losses(process.layout, process.steps());
  return train::oracle_losses(process.layout, optimizer, process.steps());
}

void serve(const Process& process) {
  for (const train::OracleOptimizer& optimizer : process.optimizers()) {
    parallel::ParameterServer server(frontends::parameter_server_options(process.options),
                                     {[&optimizer](nn::ParameterSet& set) {
                                       return optim::optimizers().get(optimizer.name)(set, optimizer.library_options());
                                     }});
    server.wait();
  }
}

void work(Process& process) {
  process.workers =
      std::make_shared<parallel::ProcessGroup>(frontends::worker_rank(process.options.cluster), kDeadline);
  if (!process.has_servers) {
    parallel::TcpTransportOptions transport{
        .process = process.workers->rank(), .token = "check", .deadline = kDeadline};
    for (const std::string& host : process.options.cluster.worker_hosts) {
      const frontends::HostAddress address = frontends::parse_host(host, "worker_hosts");
      transport.addresses.push_back({address.host, address.port});
    }
    process.exchange =
        parallel::ProcessEngine::start([transport] { return parallel::open_tcp_transport(transport); }, kDeadline);
  }
  int compared = 0;
  for (const train::OracleOptimizer& optimizer : process.optimizers()) {
    SCOPED_TRACE(optimizer.text);
    std::shared_ptr<parallel::ServerGroup> servers;
    std::function<std::vector<std::unique_ptr<core::Communicator>>()> make;
    if (process.has_servers) {
      servers = std::make_shared<parallel::ServerGroup>(frontends::server_group_options(process.options));
    } else {
      make = [&process] {
        return parallel::make_process_communicators(process.exchange, static_cast<int>(process.options.replicas),
                                                    kDeadline, parallel::choose_algorithm,
                                                    parallel::HostExchange::kMessages);
      };
    }
    const train::OracleShare share = train::train_oracle_share(process.layout, process.workers->rank(), optimizer,
                                                               process.steps(), std::move(make), servers);
    if (servers) servers->leave();
    const train::OracleLosses losses = train::joined(process.layout, all_shares(share, *process.workers));
    train::expect_oracle_losses(losses, defined_losses(process, optimizer),
                                process.fp16 ? train::kOracleTolerance16 : train::kOracleTolerance);
    for (size_t step = 0; process.prints && step < losses.base.size(); ++step) {
      std::printf("%s", fmt::format("{} {:.9g}\n", step, losses.base[step]).c_str());
    }
    ++compared;
  }
  if (process.exchange) process.exchange->finish(kDeadline);
  process.workers->leave();
  std::printf("%s", fmt::format("worker {}: {} optimizers {}\n", process.options.cluster.task_index, compared,
                                testing::UnitTest::GetInstance()->Failed() ? "are not all as defined"
                                                                           : "follow their definition")
                        .c_str());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 7) {
    std::fprintf(stderr, "usage: %s ps|worker TASK PS_HOSTS WORKER_HOSTS MODE REPLICAS [losses|fp16]\n", arguments[0]);
    return 2;
  }
  try {
    Process process = read_process(arguments, count);
    frontends::check_cluster(process.options);
    process.options.cluster.is_server() ? serve(process) : work(process);
    return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
