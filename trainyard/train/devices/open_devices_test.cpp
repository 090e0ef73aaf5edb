// Devices of one process and of two: who is the first, how all leave, and what gradients are exchanged with.
#include "trainyard/train/devices/open_devices.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/measured_all_reduce.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::train::open_devices_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;

TEST(OpenDevices, OfOneProcessAreTheFirst) {
  OpenDevices devices;
  EXPECT_EQ(devices.rank(), 0);
  EXPECT_EQ(devices.ranks(), 1);
  EXPECT_TRUE(devices.is_chief());
  EXPECT_EQ(devices.accelerator(), nullptr);
  EXPECT_TRUE(devices.device().is_cpu());
  EXPECT_NO_THROW(devices.leave());
  int calls = 0;
  devices.report_what_fails([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  const auto first = std::make_shared<FakeAccelerator>(), second = std::make_shared<FakeAccelerator>();
  devices.accelerators = {first, second};
  EXPECT_EQ(devices.accelerator(), first);
}

TEST(OpenDevices, ProcessesLeaveTogether) {
  std::atomic<bool> all_leave = false;
  parallel::on_ranks(2, [&](const Group& group) {
    OpenDevices devices;
    devices.processes = group;
    EXPECT_EQ(devices.rank(), group->rank());
    EXPECT_EQ(devices.ranks(), 2);
    EXPECT_EQ(devices.is_chief(), group->rank() == 0);
    if (group->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      all_leave = true;
    }
    devices.leave();
    EXPECT_TRUE(all_leave) << "rank " << group->rank();
  });
}

TEST(OpenDevices, LeavingThrowsWhatAnotherProcessHasReported) {
  parallel::on_ranks(2, [](const Group& group) {
    OpenDevices devices;
    devices.processes = group;
    if (group->rank() == 0) {
      EXPECT_THAT(core::message_of([&] { devices.leave(); }, core::ErrorCode::kPeerFailed),
                  HasSubstr("another rank has failed: got rank 1: the disk is gone"));
      return;
    }
    const auto work = [] { throw core::Error(core::ErrorCode::kIo, "the disk is gone"); };
    EXPECT_EQ(core::message_of([&] { devices.report_what_fails(work); }, core::ErrorCode::kIo),
              "the disk is gone: rank 1 of 2");
  });
}

// Replicas of one process exchange gradients by the default algorithm unless another one is asked for.
TEST(OpenDevices, ReplicasHaveCommunicatorsForAnAlgorithmThatIsAskedFor) {
  const auto chosen = [](int replicas, const parallel::AllReduceOptions& all_reduce) {
    OpenDevices devices;
    devices.replicas = replicas;
    devices.make_communicators = [] { return std::vector<std::unique_ptr<core::Communicator>>(); };
    devices.make_gradient_communicators = devices.make_communicators;
    devices.choose_communicators(all_reduce);
    EXPECT_FALSE(devices.make_communicators) << "that of the host's memory";
    return devices.make_gradient_communicators;
  };
  EXPECT_FALSE(chosen(3, {}));
  EXPECT_FALSE(chosen(3, {.spec = "auto"})) << "one process measures nothing";
  EXPECT_FALSE(chosen(1, {.spec = "xring"}));
  for (const parallel::AllReduceOptions& all_reduce :
       {parallel::AllReduceOptions{.spec = "xring"}, parallel::AllReduceOptions{.wire = at::kBFloat16}}) {
    const auto make = chosen(3, all_reduce);
    ASSERT_TRUE(make);
    const auto communicators = make();
    ASSERT_EQ(communicators.size(), 3U);
    EXPECT_EQ(communicators[2]->size(), 3);
    EXPECT_EQ(communicators[2]->rank(), 2);
  }
}

// Two processes of two replicas each: by the usual algorithm, and gradients by another one.
TEST(OpenDevices, ProcessesHaveCommunicatorsOfTheirExchange) {
  const auto engines = parallel::make_engines(2);
  parallel::on_processes(2, [&](size_t process) {
    OpenDevices devices;
    devices.replicas = 2;
    devices.exchange = engines[process];
    const auto expect_all = [process](const auto& make) {
      ASSERT_TRUE(make);
      const auto communicators = make();
      ASSERT_EQ(communicators.size(), 2U);
      for (int replica = 0; replica < 2; ++replica) {
        EXPECT_EQ(communicators[static_cast<size_t>(replica)]->size(), 4);
        EXPECT_EQ(communicators[static_cast<size_t>(replica)]->rank(), 2 * static_cast<int>(process) + replica);
      }
    };
    devices.choose_communicators();
    EXPECT_FALSE(devices.make_gradient_communicators);
    expect_all(devices.make_communicators);
    devices.choose_communicators({.spec = "xring"});
    expect_all(devices.make_communicators);
    expect_all(devices.make_gradient_communicators);
  });
}

TEST(OpenDevices, ReplicasOnAcceleratorsExchangeByThese) {
  OpenDevices devices;
  devices.replicas = 2;
  devices.accelerators = {std::make_shared<FakeAccelerator>(), std::make_shared<FakeAccelerator>()};
  devices.choose_communicators({.spec = "xring"});
  EXPECT_TRUE(devices.make_communicators);
  EXPECT_FALSE(devices.make_gradient_communicators);
}

TEST(OpenDevices, AGpuIsOpenedForOneReplica) {
  EXPECT_THAT(core::message_of(
                  [] {
                    open_devices({2, 0, 2});
                  },
                  core::ErrorCode::kInvalidArgument),
              HasSubstr("a GPU is named twice: open_devices(): expected another GPU for each replica, got 2 again"));
  EXPECT_TRUE(open_devices({}).accelerators.empty());
}

// Kept by rank 0 for this layout, so that nothing is measured: the algorithm in the order of ranks, and that of
// gradients.
TEST(OpenDevices, ProcessesTakeTheAlgorithmsThatWereMeasured) {
  const auto engines = parallel::make_engines(2);
  std::array<parallel::AllReduceChoices, 2> kept = {parallel::AllReduceChoices(""), parallel::AllReduceChoices("")};
  parallel::on_ranks(2, [&](const Group& group) {
    const auto process = static_cast<size_t>(group->rank());
    OpenDevices devices;
    devices.replicas = 2;
    devices.processes = group;
    devices.exchange = engines[process];
    parallel::AllReduceMeasuring measuring{.transport = parallel::mpi_version()};
    const std::string in_order = parallel::describe_measuring(devices.exchange, 2, measuring);
    measuring.order = parallel::AllReduceOrder::kAny;
    measuring.wire = at::kBFloat16;
    const std::string any = parallel::describe_measuring(devices.exchange, 2, measuring);
    if (process == 0) {
      kept[0].keep(in_order, {"chain", {}});
      kept[0].keep(any, {"xring", {}});
    }
    const auto expect_all = [process](const auto& make) {
      ASSERT_TRUE(make);
      const auto communicators = make();
      ASSERT_EQ(communicators.size(), 2U);
      for (size_t replica = 0; replica < 2; ++replica) {
        EXPECT_EQ(communicators[replica]->size(), 4);
        EXPECT_EQ(communicators[replica]->rank(), static_cast<int>(2 * process + replica));
      }
    };
    OpenDevices usual = devices;
    usual.choose_communicators({}, &kept[process]);
    EXPECT_EQ(usual.measured_all_reduce, "chain");
    expect_all(usual.make_communicators);
    EXPECT_FALSE(usual.make_gradient_communicators);
    EXPECT_EQ(usual.automatic_all_reduce_spec, "");
    EXPECT_EQ(usual.kernels.choices, nullptr);

    const parallel::AllReduceOptions automatic{.spec = "auto", .wire = at::kBFloat16};
    OpenDevices chosen = devices;
    chosen.choose_communicators(automatic, &kept[process]);
    EXPECT_EQ(chosen.measured_all_reduce, "chain");
    EXPECT_EQ(chosen.automatic_all_reduce_spec, "xring");
    EXPECT_NE(chosen.kernels.choices, nullptr);
    expect_all(chosen.make_communicators);
    expect_all(chosen.make_gradient_communicators);

    if (process == 0) kept[0].keep(any, {"default", {}});
    const auto choices = std::make_shared<nn::KernelChoices>();
    devices.kernels.choices = choices;
    devices.choose_communicators(automatic, &kept[process]);
    EXPECT_EQ(devices.automatic_all_reduce_spec, "") << "none is faster";
    EXPECT_EQ(devices.kernels.choices, choices);
    EXPECT_TRUE(devices.make_gradient_communicators);
  });
  EXPECT_EQ(kept[0].all().size(), 2U);
  EXPECT_TRUE(kept[1].all().empty());
}

}  // namespace
}  // namespace trainyard::train::open_devices_test
