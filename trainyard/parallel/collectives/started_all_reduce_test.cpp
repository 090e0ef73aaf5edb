// All-reduces that are started and waited for later, over processes that are threads and messages that lie in memory.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::started_all_reduce_test {
namespace {

using core::Communicator, core::Error, core::ErrorCode, core::PendingCollective, core::ReduceOp,
    std::chrono::milliseconds, ::testing::AnyOf, ::testing::HasSubstr;

// The ranks of some processes, which are threads.
class StartedRanks {
 public:
  explicit StartedRanks(const std::vector<int>& replicas, milliseconds deadline = kLongDeadline)
      : engines(make_engines(static_cast<int>(replicas.size()))), ranks(connect(engines, replicas, deadline)) {}

  std::vector<std::optional<Error>> run(const std::function<void(Communicator&)>& body) const {
    return on_ranks(ranks, body);
  }

  std::vector<std::shared_ptr<ProcessEngine>> engines;
  Communicators ranks;
};

void await(PendingCollective& pending) {
  while (!pending.poll()) std::this_thread::sleep_for(milliseconds(1));
}

class StartedAllReduce : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Layouts, StartedAllReduce,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 1, 1, 1},
                                         std::vector{1, 3}, std::vector{4}));

TEST_P(StartedAllReduce, PiecesHaveTheBitsOfTheWhole) {
  StartedRanks group(GetParam());
  expect_none(group.run([](Communicator& self) {
    const at::Tensor values = at::full({1'000'003}, 0.1F).mul(self.rank() + 0.3F);
    at::Tensor whole = values.clone(), pieces = values.clone();
    self.all_reduce(whole, ReduceOp::kMean);
    std::vector<std::unique_ptr<PendingCollective>> started;
    int64_t begin = 0;
    for (const int64_t count : {int64_t{3}, int64_t{400'000}, int64_t{0}, int64_t{600'000}}) {
      started.push_back(self.start_all_reduce(pieces.narrow(0, begin, count), ReduceOp::kMean));
      begin += count;
    }
    started.push_back(self.start_all_reduce(pieces.narrow(0, begin, 0), ReduceOp::kMean));
    self.all_reduce(pieces.narrow(0, begin, pieces.numel() - begin), ReduceOp::kMean);  // an ordinary one behind them
    for (const auto& each : started) {
      each->wait();
      EXPECT_TRUE(each->poll());
      each->wait();  // which does nothing
    }
    EXPECT_TRUE(pieces.equal(whole));
  }));
}

TEST(StartedAllReduce, GoesOnWhileNobodyWaits) {
  StartedRanks group({1, 2});
  std::vector<at::Tensor> tensors;
  std::vector<std::unique_ptr<PendingCollective>> started;
  for (int rank = 0; rank < 3; ++rank) tensors.push_back(at::full({300'000}, static_cast<float>(rank)));
  for (const int rank : {1, 0}) {
    started.push_back(
        group.ranks[static_cast<size_t>(rank)]->start_all_reduce(tensors[static_cast<size_t>(rank)], ReduceOp::kSum));
  }
  std::this_thread::sleep_for(milliseconds(20));
  for (const auto& each : started) EXPECT_FALSE(each->poll()) << "rank 2 has not come";
  started.push_back(group.ranks[2]->start_all_reduce(tensors[2], ReduceOp::kSum));
  for (const auto& each : started) await(*each);
  for (const at::Tensor& tensor : tensors) EXPECT_TRUE(tensor.eq(3).all().item<bool>());
  for (const auto& each : started) each->wait();
  for (const auto& rank : group.ranks) EXPECT_TRUE(rank->progresses_in_background());
}

TEST(StartedAllReduce, OfRanksOfOneProcessIsDoneInWait) {
  auto ranks = make_thread_communicators(2);
  for (const auto& rank : ranks) rank->set_deadline(std::chrono::seconds(20));
  at::Tensor other = at::full({5}, 1.0F), own = at::full({5}, 2.0F);
  const auto mine = ranks[0]->start_all_reduce(own, ReduceOp::kSum);
  EXPECT_FALSE(ranks[0]->progresses_in_background());
  core::Thread peer({}, [&] { ranks[1]->start_all_reduce(other, ReduceOp::kSum)->wait(); });
  EXPECT_FALSE(mine->poll());
  EXPECT_TRUE(own.eq(2).all().item<bool>());
  mine->wait();
  peer.join();
  EXPECT_TRUE(mine->poll());
  mine->wait();  // a second call would find nobody
  EXPECT_TRUE(own.eq(3).all().item<bool>());
  EXPECT_TRUE(other.eq(3).all().item<bool>());
  EXPECT_FALSE(StartedRanks({2}).ranks[0]->progresses_in_background()) << "one process, though it has an engine";
}

TEST(StartedAllReduce, OneThatDiffersIsAnErrorOnAllRanks) {
  StartedRanks group({1, 2});
  const auto errors = group.run([](Communicator& self) {
    at::Tensor first = at::full({100}, 1.0F), second = at::full({self.rank() == 2 ? 7 : 9}, 1.0F),
               third = at::full({50}, 1.0F);
    const auto a = self.start_all_reduce(first, ReduceOp::kSum), b = self.start_all_reduce(second, ReduceOp::kSum),
               c = self.start_all_reduce(third, ReduceOp::kSum);
    a->wait();
    EXPECT_TRUE(first.eq(3).all().item<bool>());
    b->wait();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    // A rank that still starts others may hear of it there, as a failure of its peers.
    EXPECT_THAT(error->code(), AnyOf(ErrorCode::kInvalidArgument, ErrorCode::kPeerFailed));
    EXPECT_THAT(error->what(), HasSubstr("ranks called different collectives"));
    EXPECT_THAT(error->what(), HasSubstr("on rank 2"));
  }
}

TEST(StartedAllReduce, AnAbortEndsTheWaitAndThePoll) {
  StartedRanks group({1, 1});
  at::Tensor tensor = at::full({300'000}, 1.0F);
  const auto first = group.ranks[0]->start_all_reduce(tensor.narrow(0, 0, 100'000), ReduceOp::kSum),
             second = group.ranks[0]->start_all_reduce(tensor.narrow(0, 100'000, 200'000), ReduceOp::kSum);
  core::Thread aborts({}, [&] {
    std::this_thread::sleep_for(milliseconds(20));
    group.ranks[0]->abort({ErrorCode::kIo, "the disk is gone"});
  });
  EXPECT_THAT(core::message_of([&] { first->wait(); }, ErrorCode::kPeerFailed), HasSubstr("the disk is gone"));
  aborts.join();
  EXPECT_TRUE(second->poll());
  EXPECT_EQ(core::code_of([&] { second->wait(); }), ErrorCode::kPeerFailed);
  EXPECT_EQ(core::code_of([&] { (void)group.ranks[0]->start_all_reduce(tensor, ReduceOp::kSum); }),
            ErrorCode::kPeerFailed);
}

TEST(StartedAllReduce, ADeadlineCountsFromTheWaitAndNamesWhoIsMissing) {
  StartedRanks group({1, 2}, milliseconds(200));
  at::Tensor tensor = at::full({10}, 1.0F);
  const auto pending = group.ranks[1]->start_all_reduce(tensor, ReduceOp::kSum);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(pending->poll());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(core::message_of([&] { pending->wait(); }, ErrorCode::kTimeout), HasSubstr("no call from rank 2"));
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(190));
}

// The peer hears of a rank that has died from the process group, while its own buckets are on their way.
TEST(StartedAllReduce, ADeathIsHeardOfByWhoWaits) {
  StartedRanks group({1, 1});
  std::atomic<bool> died = false;
  group.engines[0]->watch({.reported = [&]() -> std::optional<Error> {
    if (!died) return std::nullopt;
    return Error(ErrorCode::kPeerFailed, "rank 1 has died");
  }});
  at::Tensor tensor = at::full({10}, 1.0F);
  const auto pending = group.ranks[0]->start_all_reduce(tensor, ReduceOp::kSum);
  EXPECT_FALSE(pending->poll());
  died = true;
  EXPECT_THAT(core::message_of([&] { pending->wait(); }, ErrorCode::kPeerFailed), HasSubstr("rank 1 has died"));
}

TEST(StartedAllReduce, OneThatNobodyWaitsForGoesOnAndKeepsItsMemory) {
  StartedRanks group({1, 1});
  std::vector<float> memory(300'000, 1.0F);
  std::atomic<bool> let_go = false;
  {
    const at::Tensor tensor = at::from_blob(
        memory.data(), {static_cast<int64_t>(memory.size())}, [&](void*) { let_go = true; }, at::kFloat);
    const auto dropped = group.ranks[0]->start_all_reduce(tensor, ReduceOp::kSum);
  }
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(let_go) << "the engine still has to send it";
  at::Tensor peers = at::full({300'000}, 2.0F);
  group.ranks[1]->all_reduce(peers, ReduceOp::kSum);
  EXPECT_TRUE(peers.eq(3).all().item<bool>());
  // The group goes on, and the memory is let go of as soon as rank 0's engine has heard the end of it.
  for (int round = 0; round < 1000 && (round == 0 || !let_go); ++round) {
    expect_none(group.run([](Communicator& self) {
      at::Tensor next = at::full({3}, 1.0F);
      self.start_all_reduce(next, ReduceOp::kSum)->wait();
      EXPECT_TRUE(next.eq(2).all().item<bool>());
    }));
  }
  EXPECT_TRUE(let_go);
}

TEST(StartedAllReduce, TheEndDoesNotWaitForWhatNobodyWaitsFor) {
  std::atomic<int> let_go = 0;
  std::vector<float> memory(600'000, 1.0F);
  {
    StartedRanks group({1, 2});
    for (const size_t rank : {size_t{0}, size_t{1}}) {  // rank 2 never comes
      const at::Tensor tensor = at::from_blob(
          memory.data() + 300'000 * rank, {300'000}, [&](void*) { ++let_go; }, at::kFloat);
      const auto dropped = group.ranks[rank]->start_all_reduce(tensor, ReduceOp::kSum);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  // Rank 0's engine has sent the beginning of it, and a peer may still write there. Rank 1's never had it.
  EXPECT_EQ(let_go, 1);
}

TEST(StartedAllReduce, KeepsNoTensorOnceItWasWaitedFor) {
  StartedRanks group({1, 1});
  expect_none(group.run([](Communicator& self) {
    at::Tensor tensor = at::full({1000}, 1.0F);
    self.start_all_reduce(tensor, ReduceOp::kSum)->wait();
    self.barrier();  // the engine has let go of the one before
    EXPECT_EQ(tensor.storage().use_count(), 1);
  }));
}

TEST(StartedAllReduce, TooManyAreRefused) {
  StartedRanks group({1, 1});
  at::Tensor tensor = at::full({Communicator::kMostStarted + 1}, 1.0F);
  const auto start = [&](size_t rank, int number) {
    return group.ranks[rank]->start_all_reduce(tensor.narrow(0, number, 1), ReduceOp::kMax);
  };
  std::vector<std::unique_ptr<PendingCollective>> started;
  for (int i = 0; i < Communicator::kMostStarted; ++i) started.push_back(start(0, i));
  EXPECT_THAT(
      core::message_of([&] { started.push_back(start(0, Communicator::kMostStarted)); }, ErrorCode::kInvalidArgument),
      HasSubstr("too many collectives are on their way"));
  // Nothing was begun: the others come to the first ones.
  for (int i = 0; i < Communicator::kMostStarted; ++i) start(1, i)->wait();
  for (const auto& each : started) await(*each);
  const auto more = start(0, Communicator::kMostStarted), peers = start(1, Communicator::kMostStarted);
  more->wait();
}

}  // namespace
}  // namespace trainyard::parallel::started_all_reduce_test
