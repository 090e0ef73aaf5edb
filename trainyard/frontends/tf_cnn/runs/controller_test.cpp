// The controller of distributed_all_reduce and its workers, on threads of this process.
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/frontends/tf_cnn/cluster_run.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/parallel/servers/server_options.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::controller_test {
namespace {

using ::testing::HasSubstr;

// A controller and two workers; the workers' own addresses are not used here.
TfCnnOptions options_of(const std::string& job, int64_t task, const std::string& controller) {
  TfCnnOptions options;
  options.device.variable_update = "distributed_all_reduce";
  options.device.cluster.job_name = job;
  options.device.cluster.task_index = task;
  options.device.cluster.worker_hosts = {"127.0.0.1:2221", "127.0.0.1:2222"};
  options.device.cluster.controller_host = controller;
  return options;
}

struct Controlled {
  std::string lines;  // that the controller has printed
  RunStatistics statistics;
  std::string error = "no error";
};

// Runs the controller here and `work` on a thread of each worker.
Controlled control(const std::function<void(ControllerLink& link, int64_t worker)>& work, bool stops = false) {
  const std::string host = fmt::format("127.0.0.1:{}", parallel::free_port());
  std::vector<core::Thread> workers;
  for (const int64_t worker : {0, 1}) {
    workers.emplace_back(core::ThreadOptions{}, [&work, &host, worker] {
      ControllerLink link(options_of("worker", worker, host).device);
      work(link, worker);
    });
  }
  core::StopSource stop;
  if (stops) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  Controlled result;
  std::ostringstream out;
  try {
    result.statistics = run_controller(options_of("controller", 0, host), out, stop.token());
  } catch (const core::Error& error) {
    result.error = error.what();
  }
  for (core::Thread& worker : workers) worker.join();
  core::log::set_origin("");
  result.lines = out.str();
  return result;
}

TEST(Controller, PrintsTheLinesOfTheFirstWorkerAndReturnsItsStatistics) {
  const Controlled result = control([](ControllerLink& link, int64_t worker) {
    link.out() << "begin of " << worker << "\n";
    EXPECT_FALSE(link.report(-1));
    link.out() << "step of " << worker << "\n";
    EXPECT_FALSE(link.report(0));
    EXPECT_FALSE(link.report(1)) << "without a line";
    link.out() << "end of " << worker << "\n";
    RunStatistics statistics{.num_workers = 2, .num_steps = 14};
    statistics.average_wall_time = 0.25;
    statistics.images_per_sec = 1.5 + static_cast<double>(worker);
    statistics.last_average_loss = 0.125;
    statistics.stopped_by_signal = true;
    link.end(statistics);
  });
  EXPECT_EQ(result.error, "no error");
  EXPECT_EQ(result.lines, "begin of 0\nstep of 0\nend of 0\n");
  EXPECT_EQ(result.statistics.num_workers, 2);
  EXPECT_EQ(result.statistics.num_steps, 14);
  EXPECT_EQ(result.statistics.average_wall_time, 0.25);
  EXPECT_EQ(result.statistics.images_per_sec, 1.5);
  EXPECT_EQ(result.statistics.last_average_loss, 0.125);
  EXPECT_TRUE(result.statistics.stopped_by_signal);
}

TEST(Controller, PassesItsStopOnToAllWorkers) {
  const Controlled result = control(
      [](ControllerLink& link, int64_t) {
        EXPECT_TRUE(link.report(-1));
        link.end({});
      },
      /*stops=*/true);
  EXPECT_EQ(result.error, "no error");
  EXPECT_EQ(result.statistics.last_average_loss, std::nullopt) << "nothing was trained";
  EXPECT_FALSE(result.statistics.stopped_by_signal);
}

// The stop is heard in each step, and before the first one nothing is trained that could end.
TEST(Controller, EndsTheTrainingsOfItsWorkersWhenItIsStopped) {
  for (const bool stops : {false, true}) {
    std::array<int64_t, 2> steps{};
    const Controlled result = control(
        [&steps](ControllerLink& link, int64_t worker) {
          train::TowerTrainer trainer(train::tiny_options(), train::tiny_source(24, 6));
          trainer.add(std::make_shared<ControllerReport>(
              std::shared_ptr<ControllerLink>(std::shared_ptr<ControllerLink>(), &link)));
          trainer.train({.steps_per_epoch = 4});
          steps.at(static_cast<size_t>(worker)) = trainer.global_step();
          link.end({.num_workers = 2, .num_steps = trainer.global_step()});
        },
        stops);
    EXPECT_EQ(result.error, "no error");
    EXPECT_THAT(steps, ::testing::Each(stops ? 1 : 4));
    EXPECT_EQ(result.statistics.num_steps, stops ? 1 : 4);
  }
}

// Among the workers a rank is a worker; in the group with the controller worker 1 is rank 2.
TEST(Controller, AndOtherWorkersNameTheWorkerThatHasFailed) {
  std::string heard;
  const Controlled result = control([&heard](ControllerLink& link, int64_t worker) {
    if (worker == 1) {
      link.fail({core::ErrorCode::kNoSpace, {.problem = "the disk of rank 1 is full", .where = "rank 12"}});
      return;
    }
    heard = core::message_of([&link] { link.report(-1); }, core::ErrorCode::kPeerFailed);
  });
  for (const std::string& error : {result.error, heard}) {
    EXPECT_THAT(error, HasSubstr("worker 1: the disk of worker 1 is full: worker 12"));
  }
}

// No worker comes: the server waits for one until its process is asked to stop.
TEST(ServerOfParameters, EndsTheTrainingWhenItsProcessIsAskedToStop) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  const std::string host = fmt::format("127.0.0.1:{}", parallel::free_port());
  TfCnnOptions options;
  options.device.variable_update = "parameter_server";
  options.device.cluster.job_name = "ps";
  options.device.cluster.ps_hosts = {host};
  options.device.cluster.worker_hosts = {"127.0.0.1:2221"};
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  std::ostringstream out;
  const core::Error error = core::thrown_by([&] { run_parameter_server(options, out, stop.token()); });
  core::log::set_origin("");
  EXPECT_EQ(error.code(), core::ErrorCode::kCancelled);
  EXPECT_EQ(error.detail().problem, fmt::format("ps 0 ({}) was asked to stop", host));
  EXPECT_EQ(error.detail().actual, "SIGTERM");
  EXPECT_EQ(out.str(), "Running parameter server 0\n");
}

TEST(ServerOfParameters, EndsWhenItsWorkersHaveLeft) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  TfCnnOptions options;
  options.device.variable_update = "parameter_server";
  options.device.cluster.job_name = "ps";
  options.device.cluster.ps_hosts = {fmt::format("127.0.0.1:{}", parallel::free_port())};
  options.device.cluster.worker_hosts = {"127.0.0.1:2221"};
  core::Thread worker(core::ThreadOptions{}, [&options] {
    DeviceOptions own = options.device;
    own.cluster.job_name = "worker";
    nn::ParameterSet set;
    set.declare({.name = "fc.weight", .shape = {5}, .init = nn::Initializer::zeros()});
    set.allocate();
    const auto optimizer = make_optimizer(options)(set);
    parallel::ServerGroup servers(server_group_options(own));
    EXPECT_EQ(core::message_of([&] { servers.join(set, {optimizer.get()}); }), "no error");
    servers.leave();
  });
  std::ostringstream out;
  const core::StopSource stop;
  const RunStatistics statistics = run_parameter_server(options, out, stop.token());
  worker.join();
  core::log::set_origin("");
  EXPECT_EQ(statistics.num_workers, 1);
  EXPECT_FALSE(statistics.stopped_by_signal);
}

TEST(Controller, RanksHaveTheNamesOfTheirProcessesInErrors) {
  const TfCnnOptions options = options_of("worker", 0, "rank 0, rank 7, rank 123456, rank 1234567, ranks 3");
  EXPECT_THAT(core::message_of([&] { ControllerLink link(options.device); }),
              HasSubstr("got the controller, worker 6, worker 123455, rank 1234567, ranks 3;"));
}

}  // namespace
}  // namespace trainyard::frontends::controller_test
