// The communicator's own work, on a NCCL that is a fake in the host's memory: how ranks meet, wait, fail and end.
#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/fake_nccl.h"

namespace trainyard::parallel::nccl_communicator_test {
namespace {

using core::Error;
using core::ErrorCode;
using core::ReduceOp;
using core::thrown_by;
using std::chrono::milliseconds;

struct Rig {
  explicit Rig(int size, milliseconds deadline = std::chrono::seconds(20)) {
    communicators =
        make_nccl_communicators(library, {.id = library->unique_id(),
                                          .size = size,
                                          .devices = std::vector<at::Device>(static_cast<size_t>(size), at::kCPU),
                                          .deadline = deadline});
  }
  DeviceCommunicator& at(int rank) {
    return dynamic_cast<DeviceCommunicator&>(*communicators[static_cast<size_t>(rank)]);
  }
  void on_all(const std::function<void(int, DeviceCommunicator&)>& work) {
    std::vector<core::Thread> threads;
    for (int r = 0; r < static_cast<int>(communicators.size()); ++r) {
      threads.emplace_back(core::ThreadOptions{}, [this, &work, r] { work(r, at(r)); });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  std::shared_ptr<FakeNccl> library = std::make_shared<FakeNccl>();
  std::vector<std::unique_ptr<core::Communicator>> communicators;
};

TEST(NcclCommunicator, ReducesByItsDefinition) {
  for (const int size : {1, 2, 3}) {
    Rig rig(size);
    rig.on_all([&](int rank, DeviceCommunicator& own) {
      EXPECT_EQ(own.rank(), rank);
      EXPECT_EQ(own.size(), size);
      const auto reduced = [&](ReduceOp op) {
        at::Tensor tensor = at::tensor({1.0 + rank, -2.0 * rank}, at::kDouble);
        own.all_reduce(tensor, op);
        own.wait();
        return std::pair(tensor[0].item<double>(), tensor[1].item<double>());
      };
      const double sum = size * (size - 1) / 2.0;  // of the ranks
      EXPECT_EQ(reduced(ReduceOp::kSum), std::pair(size + sum, -2 * sum));
      EXPECT_EQ(reduced(ReduceOp::kMean), std::pair((size + sum) / size, -2 * sum / size));
      EXPECT_EQ(reduced(ReduceOp::kMax), std::pair(double(size), 0.0));
      EXPECT_EQ(reduced(ReduceOp::kMin), std::pair(1.0, -2.0 * (size - 1)));
    });
  }
}

TEST(NcclCommunicator, BroadcastsGathersAndMeets) {
  Rig rig(3);
  std::atomic<int> arrived = 0;
  rig.on_all([&](int rank, DeviceCommunicator& own) {
    at::Tensor bytes = at::full({5}, rank, at::kByte);
    own.broadcast(bytes, 2);
    const std::vector<at::Tensor> all = own.all_gather(at::full({2, 2}, rank, at::kLong));
    own.wait();
    EXPECT_EQ(bytes[4].item<int>(), 2);
    ASSERT_EQ(all.size(), 3U);
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(all[static_cast<size_t>(r)].equal(at::full({2, 2}, r, at::kLong)));
    ++arrived;
    own.barrier();
    EXPECT_EQ(arrived, 3);
  });
}

TEST(NcclCommunicator, ReturnsBeforeThePeersHaveCome) {
  Rig rig(2);
  at::Tensor first = at::full({3}, 1.0), second = at::full({3}, 2.0);
  rig.at(0).all_reduce(first, ReduceOp::kSum);  // alone
  rig.at(0).check();
  rig.at(1).all_reduce(second, ReduceOp::kSum);
  rig.at(0).wait();
  EXPECT_TRUE(first.equal(at::full({3}, 3.0)));
}

TEST(NcclCommunicator, APeerThatNeverCallsIsATimeoutThatNamesIt) {
  Rig rig(3, milliseconds(100));
  at::Tensor first = at::full({7}, 1.0), second = at::full({7}, 1.0);
  rig.at(0).all_reduce(first, ReduceOp::kSum);
  rig.at(2).all_reduce(second, ReduceOp::kSum);
  const Error error = thrown_by([&] { rig.at(0).wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(error, "all_reduce(sum) of Float [7]")) << error.what();
  EXPECT_TRUE(says(error, "no call from rank 1")) << error.what();
  EXPECT_EQ(thrown_by([&] { rig.at(1).all_reduce(first, ReduceOp::kSum); }).code(), ErrorCode::kTimeout);
  rig.communicators.clear();
  EXPECT_EQ(rig.library->aborted, 3);
  EXPECT_EQ(rig.library->finished, 0);
}

TEST(NcclCommunicator, ARankThatNeverJoinsIsATimeout) {
  const auto library = std::make_shared<FakeNccl>();
  const Error error = thrown_by([&] {
    make_nccl_communicators(
        library, {.id = "alone", .size = 2, .first_rank = 1, .devices = {at::kCPU}, .deadline = milliseconds(50)});
  });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(error, "rank 1 of 2")) << error.what();
  EXPECT_TRUE(says(error, "joining")) << error.what();
  EXPECT_EQ(library->aborted, 1);
}

TEST(NcclCommunicator, AbortWakesWhoWaitsAndStays) {
  Rig rig(2);
  at::Tensor tensor = at::full({1}, 1.0);
  rig.at(0).all_reduce(tensor, ReduceOp::kSum);
  core::Thread other({}, [&] { rig.at(1).abort({ErrorCode::kIo, "the disk of replica 1 is on fire"}); });
  const Error error = thrown_by([&] { rig.at(0).wait(); });
  other.join();
  EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
  EXPECT_TRUE(says(error, "the disk of replica 1 is on fire")) << error.what();
  rig.at(0).abort({ErrorCode::kIo, "a later error"});
  EXPECT_TRUE(says(thrown_by([&] { rig.at(0).check(); }), "on fire"));
  EXPECT_TRUE(says(thrown_by([&] { rig.at(1).broadcast(tensor, 0); }), "on fire"));
}

TEST(NcclCommunicator, WhatNcclHearsOfAPeerEndsAllRanks) {
  Rig rig(2);
  at::Tensor tensor = at::full({1}, 1.0);
  rig.at(0).all_reduce(tensor, ReduceOp::kSum);
  rig.library->break_connection("remote process exited");
  for (const int rank : {0, 1}) {
    const Error error = thrown_by([&] {
      for (;;) rig.at(rank).check();
    });
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
    EXPECT_TRUE(says(error, "remote process exited")) << error.what();
  }
}

TEST(NcclCommunicator, WhatAnotherProcessReportsEndsTheRanksHere) {
  const auto library = std::make_shared<FakeNccl>();
  const auto communicators = make_nccl_communicators(
      library, {.id = "one", .devices = {at::kCPU}, .peer_failure = [] {
                  return std::optional(Error(ErrorCode::kPeerFailed, "rank 3 has run out of memory"));
                }});
  auto& own = dynamic_cast<DeviceCommunicator&>(*communicators[0]);
  EXPECT_TRUE(says(thrown_by([&] {
                     for (;;) own.check();
                   }),
                   "rank 3 has run out of memory"));
}

TEST(NcclCommunicator, RefusesTwoRanksOnOneGpuBeforeNcclIsAsked) {
  const auto library = std::make_shared<FakeNccl>();
  library->one_gpu = true;
  const Error error = thrown_by([&] {
    make_nccl_communicators(library, {.id = "x", .size = 2, .devices = {at::kCPU, at::kCPU}});
  });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(says(error, "ranks 0 and 1")) << error.what();
  EXPECT_EQ(library->destroyed, 0) << "nobody had joined";
  EXPECT_THROW(make_nccl_communicators(library, {.id = "x", .size = 1, .first_rank = 1, .devices = {at::kCPU}}), Error);
}

TEST(NcclCommunicator, RefusesRanksThatAreNotOfTheGroup) {
  const auto refusal = [](int first_rank, const std::vector<at::Device>& devices) {
    return core::message_of([&] {
      make_nccl_communicators(std::make_shared<FakeNccl>(),
                              {.id = "x", .size = 4, .first_rank = first_rank, .devices = devices});
    });
  };
  EXPECT_THAT(refusal(0, {}), core::Says("not ranks of the group", "some of 0 to 3, got 0 from 0 on"));
  EXPECT_THAT(refusal(-1, {at::kCPU}), core::Says("some of 0 to 3, got 1 from -1 on"));
  EXPECT_THAT(refusal(3, {at::kCPU, at::kCPU}), core::Says("some of 0 to 3, got 2 from 3 on"));
}

TEST(NcclCommunicator, RefusesTensorsThatItCannotUse) {
  Rig rig(1);
  auto& own = rig.at(0);
  const auto code = [](const std::function<void()>& work) { return thrown_by(work).code(); };
  EXPECT_EQ(code([&] { own.all_reduce({}, ReduceOp::kSum); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { own.all_reduce(at::full({2, 3}, 1.0).t(), ReduceOp::kSum); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { own.all_reduce(at::full({2}, 1, at::kLong), ReduceOp::kMean); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { own.all_reduce(at::full({2}, 1, at::kBool), ReduceOp::kSum); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { own.broadcast(at::full({2}, 1.0), 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { own.broadcast(at::full({2}, 1.0), -1); }), ErrorCode::kInvalidArgument);
  const at::Tensor usable = at::full({2}, 1.0);
  own.broadcast(usable, 0);
  own.wait();
  own.all_reduce(at::full({2}, 1.0), ReduceOp::kSum);
  own.wait();  // it can still be used
}

// A recorded collective is not done and not waited for; each replay of it is.
TEST(NcclCommunicator, WatchesOverReplays) {
  Rig rig(2, milliseconds(100));
  at::Tensor tensor = at::full({1}, 1.0);
  rig.library->records = true;
  rig.at(0).all_reduce(tensor, ReduceOp::kSum);
  EXPECT_EQ(rig.library->recorded, 1);
  rig.at(0).wait();  // for nothing
  rig.library->records = false;
  // What a replay waits for stands in its place here: a collective that no peer comes to, on the same stream.
  rig.at(0).set_deadline(std::chrono::hours(1));
  rig.at(0).all_reduce(tensor, ReduceOp::kSum);
  rig.at(0).set_deadline(milliseconds(100));
  rig.at(0).replayed();
  const Error error = thrown_by([&] { rig.at(0).wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(error, "captured step")) << error.what();
}

TEST(NcclCommunicator, RanksEndTogether) {
  const auto library = [] {
    Rig rig(3);
    rig.on_all([](int, DeviceCommunicator& own) { own.barrier(); });
    return rig.library;
  }();
  EXPECT_EQ(library->finished, 3);
  EXPECT_EQ(library->aborted, 0);
  EXPECT_EQ(library->destroyed, 3);
}

TEST(OpenNccl, SaysWhatIsMissing) {
  if (nccl_libraries().has("nccl")) GTEST_SKIP() << core::skip::kNeedsNoNccl;
  const Error error = thrown_by([] { open_nccl(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(says(error, "nccl.h")) << error.what();
}

TEST(NcclCommunicator, ACollectiveThatNcclRefusesIsTheErrorOfAll) {
  Rig rig(3);
  at::Tensor tensor = at::full({2, 7}, 1.0);
  rig.library->refusal = "invalid usage";
  const std::string message =
      "NCCL refused a collective: rank 1 of 3, all_reduce(sum) of Float [2, 7], call 1: got invalid usage; look at "
      "the other ranks; NCCL_DEBUG=WARN says more";
  const auto reduce = [&](int rank) { rig.at(rank).all_reduce(tensor, ReduceOp::kSum); };
  EXPECT_EQ(core::message_of([&] { reduce(1); }, ErrorCode::kPeerFailed), message);
  rig.library->refusal = "";
  EXPECT_EQ(core::message_of([&] { reduce(2); }, ErrorCode::kPeerFailed), message);
}

TEST(NcclCommunicator, AGroupThatCannotBeAskedEndsTheRanksHere) {
  const auto library = std::make_shared<FakeNccl>();
  const auto communicators = make_nccl_communicators(
      library, {.id = "one", .devices = {at::kCPU}, .peer_failure = []() -> std::optional<Error> {
                  throw std::runtime_error("the group has ended");
                }});
  auto& own = dynamic_cast<DeviceCommunicator&>(*communicators[0]);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const std::string message = core::message_of(
      [&] {
        while (std::chrono::steady_clock::now() < until) own.check();
      },
      ErrorCode::kInternal);
  EXPECT_EQ(message, "the GPUs' exchange cannot be watched: got the group has ended");
}

}  // namespace
}  // namespace trainyard::parallel::nccl_communicator_test
