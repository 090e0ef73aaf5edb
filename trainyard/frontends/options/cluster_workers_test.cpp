// Workers of a cluster without servers, on threads of this process: how they meet by the hosts of their flags, what
// they exchange, and what they hear of each other.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/shared_cores.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/parallel/collectives/process_engine.h"
#include "trainyard/parallel/collectives/tcp/tcp_transport.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/testing/free_port.h"

namespace trainyard::frontends::cluster_workers_test {
namespace {

using core::log::Level;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{20};

class ClusterWorkers : public ::testing::Test {
 protected:
  void SetUp() override {
    level_before_ = core::log::set_level(Level::kInfo);
    const parallel::TakenPort first, second;
    ports_ = {first.number(), second.number()};
  }
  void TearDown() override {
    core::log::set_level(level_before_);
    core::log::set_origin("");
    core::share_cores(1);
  }

  // Returns the options of a worker. Their start takes less than the five seconds that the exchange has more.
  DeviceOptions worker(size_t task, size_t workers = 2) const {
    DeviceOptions options;
    options.gpu = false;
    options.deterministic = true;  // no all-reduce is measured
    options.variable_update = "collective_all_reduce";
    options.rank_start_deadline = 4.5;
    options.cluster.job_name = "worker";
    options.cluster.task_index = static_cast<int64_t>(task);
    for (size_t i = 0; i < workers; ++i) {
      options.cluster.worker_hosts.push_back(fmt::format("127.0.0.1:{}", ports_.at(i)));
    }
    return options;
  }

  std::array<uint16_t, 2> ports_{};

 private:
  Level level_before_ = Level::kInfo;
};

TEST_F(ClusterWorkers, MeetAndExchange) {
  const int cores = core::available_cores();
  parallel::on_processes(2, [&](size_t p) {
    const train::OpenDevices opened = open_device(worker(p), {});
    EXPECT_EQ(opened.replicas, 1);
    EXPECT_EQ(opened.rank(), static_cast<int>(p));
    EXPECT_EQ(opened.ranks(), 2);
    EXPECT_TRUE(opened.servers == nullptr);
    ASSERT_TRUE(opened.exchange != nullptr);
    EXPECT_EQ(opened.exchange->process(), static_cast<int>(p));
    EXPECT_EQ(opened.exchange->processes(), 2);
    EXPECT_EQ(opened.processes->process().local_rank, 0);
    EXPECT_EQ(opened.processes->deadlines().start, std::chrono::milliseconds(4500));
    {
      const auto communicators = opened.make_communicators();
      ASSERT_EQ(communicators.size(), 1U);
      EXPECT_EQ(communicators[0]->rank(), static_cast<int>(p));
      const at::Tensor numbers = at::full({3}, static_cast<double>(p) + 1);
      communicators[0]->all_reduce(numbers, core::ReduceOp::kSum);
      EXPECT_TRUE(at::equal(numbers, at::full({3}, 3.0)));
    }
    EXPECT_EQ(opened.processes->operation(), "all-reduce") << "as the exchange says";
    opened.leave();
  });
  EXPECT_EQ(core::available_cores(), std::max(1, cores / 2)) << "both are on this machine";
  EXPECT_EQ(core::log::set_level(Level::kInfo), Level::kWarning) << "of worker 1";
}

TEST_F(ClusterWorkers, AllLogWhereALevelIsGiven) {
  parallel::on_processes(2, [&](size_t p) {
    DeviceOptions options = worker(p);
    options.log_all_ranks = true;
    open_device(options, {}).leave();
  });
  EXPECT_EQ(core::log::set_level(Level::kInfo), Level::kInfo);
}

TEST_F(ClusterWorkers, TheFirstLogsAllAndHasItsName) {
  const int cores = core::available_cores();
  const train::OpenDevices opened = open_device(worker(0, 1), {});
  EXPECT_EQ(opened.ranks(), 1);
  EXPECT_EQ(core::available_cores(), cores);
  EXPECT_EQ(core::log::set_level(Level::kInfo), Level::kInfo);
  ::testing::internal::CaptureStderr();
  core::log::info("this line");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("worker 0"));
  opened.leave();
}

// The second worker is played by the test: it joins the group and the exchange by what the first one says.
TEST_F(ClusterWorkers, KnowEachOtherByATokenThatTheFirstHasDrawn) {
  std::string token;
  parallel::on_processes(2, [&](size_t p) {
    if (p == 0) {
      open_device(worker(0), {}).leave();
      return;
    }
    parallel::ProcessGroup group(parallel::ProcessRank{.rank = 1, .size = 2, .master_port = ports_[0]}, kLong);
    token = group.from_first("the token of the exchange", "");
    parallel::TcpTransportOptions options{.process = 1, .token = token, .deadline = kLong};
    for (const uint16_t port : ports_) options.addresses.push_back({.host = "127.0.0.1", .port = port});
    group.begin_meeting();
    const auto exchange =
        parallel::ProcessEngine::start([options] { return parallel::open_tcp_transport(options); }, kLong);
    group.end_meeting();
    group.leave();
    exchange->finish(kLong);
  });
  EXPECT_EQ(token.size(), 32U);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
}

TEST_F(ClusterWorkers, HearOfAnExchangeThatHasFailed) {
  std::string heard, said;
  std::promise<void> over;
  const std::future<void> is_over = over.get_future();
  parallel::on_processes(2, [&](size_t p) {
    const train::OpenDevices opened = open_device(worker(p), {});
    if (p == 1) {
      opened.exchange->fail(core::Error(core::ErrorCode::kIo, "on purpose"));
      EXPECT_EQ(is_over.wait_for(kLong), std::future_status::ready);
      said = core::message_of([&] { opened.exchange->check(); }, core::ErrorCode::kIo);
      return;
    }
    heard = core::message_of(
        [&] {
          const auto until = std::chrono::steady_clock::now() + kLong;
          while (std::chrono::steady_clock::now() < until) {
            opened.exchange->check();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        },
        core::ErrorCode::kPeerFailed);
    over.set_value();
  });
  EXPECT_THAT(heard, HasSubstr("rank 1: on purpose"));
  EXPECT_EQ(said, "on purpose") << "its own error is kept";
}

// Worker 1 waits in a collective, and worker 0 does nothing.
TEST_F(ClusterWorkers, ThatKeepTheOthersWaitingAreNamed) {
  std::promise<void> over;
  const std::future<void> is_over = over.get_future();
  std::optional<core::Error> error;
  parallel::on_processes(2, [&](size_t p) {
    DeviceOptions options = worker(p);
    options.rank_deadline = 0.5;
    const train::OpenDevices opened = open_device(options, {});
    const auto communicators = opened.make_communicators();
    ASSERT_EQ(communicators.size(), 1U);
    opened.processes->progress("compute", 0);
    if (p == 0) {
      EXPECT_EQ(is_over.wait_for(kLong), std::future_status::ready);
      return;
    }
    communicators[0]->set_deadline(std::chrono::milliseconds(2500));
    const at::Tensor numbers = at::full({3}, 1.0);
    error = core::error_of([&] { communicators[0]->all_reduce(numbers, core::ReduceOp::kSum); });
    over.set_value();
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), core::ErrorCode::kPeerFailed) << error->what();
  EXPECT_THAT(error->what(), HasSubstr("rank 0 does not go on: step 0, compute"));
  EXPECT_THAT(error->what(), HasSubstr("the others have waited 0.5 s for it in all-reduce"));
}

}  // namespace
}  // namespace trainyard::frontends::cluster_workers_test
