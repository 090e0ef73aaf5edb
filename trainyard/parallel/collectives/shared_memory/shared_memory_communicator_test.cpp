// Ranks that share memory: processes that are threads, each with a mapping of its own, and one that is killed.
// process_communicator_test.cpp runs all collectives over it, against the sums of threads.
#include "trainyard/parallel/collectives/shared_memory/shared_memory_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::shared_memory_communicator_test {
namespace {

using core::Communicator, core::Error, core::ErrorCode, core::PendingCollective, core::ReduceOp,
    std::chrono::milliseconds, ::testing::HasSubstr;

const SharedMemoryCommunicator& shared(const std::unique_ptr<Communicator>& communicator) {
  return dynamic_cast<const SharedMemoryCommunicator&>(*communicator);
}

int64_t copied_bytes(const Communicators& ranks) {
  int64_t bytes = 0;
  for (const auto& rank : ranks) bytes += shared(rank).copied_bytes();
  return bytes;
}

at::Tensor random_values(int rank, int64_t elements) {
  core::RandomStream stream(3, "values", {static_cast<uint64_t>(rank)});
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) values.mutable_data_ptr<float>()[i] = 10 * stream.normal();
  return values;
}

// Of processes of one rank each.
Communicators ranks_of(int processes, milliseconds deadline = kLongDeadline) {
  return connect_by_memory(make_engines(processes), std::vector<int>(static_cast<size_t>(processes), 1), deadline);
}

std::vector<at::Tensor> sums_by_threads(int ranks, int64_t elements) {
  Communicators threads = make_thread_communicators(ranks);
  std::vector<at::Tensor> sums(static_cast<size_t>(ranks));
  expect_none(on_ranks(threads, [&](Communicator& self) {
    at::Tensor& own = sums[static_cast<size_t>(self.rank())];
    own = random_values(self.rank(), elements);
    self.all_reduce(own, ReduceOp::kMean);
  }));
  return sums;
}

// Each rank reads the others' tensors where they are, unless `elsewhere` says that its own lies in other memory.
void expect_sums(int processes, int64_t elements, const std::function<bool(int)>& elsewhere) {
  const Communicators ranks = ranks_of(processes);
  const std::vector<at::Tensor> expected = sums_by_threads(processes, elements);
  int64_t staged = 0;
  for (int r = 0; r < processes; ++r) staged += elsewhere(r) ? 1 : 0;
  expect_none(on_ranks(ranks, [&](Communicator& self) {
    at::Tensor values = elsewhere(self.rank()) ? at::empty({elements}) : self.new_exchanged(elements, at::kFloat);
    ASSERT_TRUE(values.defined());
    values.copy_(random_values(self.rank(), elements));
    self.all_reduce(values, ReduceOp::kMean);
    EXPECT_TRUE(values.equal(expected[static_cast<size_t>(self.rank())])) << self.rank();
  }));
  // Each of them goes into staging and comes out of it.
  EXPECT_EQ(copied_bytes(ranks), 2 * staged * elements * static_cast<int64_t>(sizeof(float)));
}

TEST(SharedMemoryCommunicator, ReducesWhereTheTensorsAre) {
  for (const int processes : {2, 3, 4}) {
    for (const int64_t elements : {1, 1000, 300'007}) {
      expect_sums(processes, elements, [](int) { return false; });
    }
  }
}

TEST(SharedMemoryCommunicator, TensorsElsewhereAreCopied) {
  for (const int64_t elements : {1, 65'536, 300'007}) {
    expect_sums(3, elements, [](int rank) { return rank == 1; });
    expect_sums(2, elements, [](int) { return true; });
  }
}

TEST(SharedMemoryCommunicator, PartsOfATensorAreReadWhereTheyAre) {
  const Communicators ranks = ranks_of(2);
  expect_none(on_ranks(ranks, [](Communicator& self) {
    at::Tensor values = self.new_exchanged(100'000, at::kFloat);
    EXPECT_TRUE(values.eq(0).all().item<bool>());
    values.fill_(self.rank() + 1);
    self.all_reduce(values.narrow(0, 16, 50'000), ReduceOp::kSum);
    EXPECT_TRUE(values.narrow(0, 16, 50'000).eq(3).all().item<bool>());
    EXPECT_TRUE(values.narrow(0, 0, 16).eq(self.rank() + 1).all().item<bool>());
    EXPECT_TRUE(values.narrow(0, 50'016, 49'984).eq(self.rank() + 1).all().item<bool>());
  }));
  EXPECT_EQ(copied_bytes(ranks), 0);
}

TEST(SharedMemoryCommunicator, MemoryOfATensorIsUsedAgainAndHoldsZeros) {
  const Communicators ranks = ranks_of(2);
  at::Tensor tensor = ranks[1]->new_exchanged(100'000, at::kFloat);
  tensor.fill_(7);
  const void* const place = tensor.const_data_ptr();
  tensor.reset();
  tensor = ranks[1]->new_exchanged(100'000, at::kFloat);
  EXPECT_EQ(tensor.const_data_ptr(), place);
  EXPECT_TRUE(tensor.eq(0).all().item<bool>());
  EXPECT_FALSE(ranks[1]->new_exchanged(int64_t{1} << 45, at::kFloat).defined()) << "more than the machine has";
}

TEST(SharedMemoryCommunicator, SendsNoMessages) {
  const auto engines = make_engines(2);
  const Communicators ranks = connect_by_memory(engines, {1, 1});
  const Traffic before = engines[0]->sent();
  expect_none(on_ranks(ranks, [](Communicator& self) {
    at::Tensor values = at::full({300'000}, 1.0F);
    self.all_reduce(values, ReduceOp::kSum);
    self.broadcast(values, 1);
    EXPECT_EQ(self.all_gather(values).size(), 2U);
    self.barrier();
  }));
  EXPECT_EQ(engines[0]->sent(), before);
}

TEST(SharedMemoryCommunicator, StartedOnesAreDoneInOrderByTheWait) {
  const Communicators ranks = ranks_of(3);
  expect_none(on_ranks(ranks, [](Communicator& self) {
    EXPECT_FALSE(self.progresses_in_background());
    // More calls than the ring of the control block has entries.
    for (int round = 0; round < 8; ++round) {
      at::Tensor values = self.new_exchanged(Communicator::kMostStarted, at::kFloat);
      values.fill_(self.rank() + round);
      std::vector<std::unique_ptr<PendingCollective>> started;
      for (int i = 0; i < Communicator::kMostStarted; ++i) {
        started.push_back(self.start_all_reduce(values.narrow(0, i, 1), ReduceOp::kSum));
      }
      EXPECT_FALSE(started.back()->poll());
      EXPECT_THROW(static_cast<void>(self.start_all_reduce(values, ReduceOp::kSum)), Error);
      started[5]->wait();
      EXPECT_TRUE(started[3]->poll());
      EXPECT_FALSE(started[6]->poll());
      EXPECT_EQ(values[5].item<float>(), 3 + 3 * round);
      started.clear();  // the rest is done by the next call
      self.barrier();
      EXPECT_TRUE(values.eq(3 + 3 * round).all().item<bool>()) << round;
    }
  }));
}

TEST(SharedMemoryCommunicator, AStartedCallThatDiffersIsAnErrorOnAllRanks) {
  const auto engines = make_engines(2);
  const Communicators ranks = connect_by_memory(engines, {1, 2});
  const auto errors = on_ranks(ranks, [](Communicator& self) {
    at::Tensor first = at::full({100}, 1.0F), second = at::full({self.rank() == 2 ? 7 : 9}, 1.0F);
    const auto a = self.start_all_reduce(first, ReduceOp::kSum), b = self.start_all_reduce(second, ReduceOp::kSum);
    a->wait();
    EXPECT_TRUE(first.eq(3).all().item<bool>());
    b->wait();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr("all_reduce(sum) of Float [7] on rank 2"));
  }
}

TEST(SharedMemoryCommunicator, TooManyDimensionsAreAnErrorOnAllRanks) {
  const Communicators ranks = ranks_of(2);
  for (const auto& error : on_ranks(ranks, [](Communicator& self) {
         self.all_reduce(at::full(std::vector<int64_t>(17, 1), 1.0F), ReduceOp::kSum);
       })) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("more than 16 dimensions"));
  }
}

// As a training asks for it: the group is told once a process, and only while its ranks wait.
TEST(SharedMemoryCommunicator, AMeetingLastsFromTheWaitToTheEnd) {
  const auto engines = make_engines(2);
  const Communicators ranks = connect_by_memory(engines, {1, 2});
  std::array<std::atomic<int>, 2> begun{}, ended{};
  for (size_t p = 0; p < 2; ++p) {
    engines[p]->watch({.reported = [] { return std::optional<Error>(); },
                       .report = [](const Error&) {},
                       .begin = [&begun, p](const char*) { ++begun[p]; },
                       .end = [&ended, p] { ++ended[p]; }});
  }
  std::atomic<int> started = 0;
  expect_none(on_ranks(ranks, [&](Communicator& self) {
    at::Tensor values = at::full({10}, 1.0F);
    const auto a = self.start_all_reduce(values.narrow(0, 0, 5), ReduceOp::kSum),
               b = self.start_all_reduce(values.narrow(0, 5, 5), ReduceOp::kSum);
    for (++started; started < 3;) std::this_thread::yield();
    EXPECT_EQ(begun[0].load() * (self.rank() == 0 ? 1 : 0), 0);
    if (self.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_EQ(begun[1], 0) << "a rank of this process computes";
    }
    // More than the ring of the control block has entries.
    for (uint32_t i = 0; i <= SharedRank::kCalls; ++i) self.barrier();
  }));
  for (size_t p = 0; p < 2; ++p) {
    EXPECT_EQ(begun[p], 3 + static_cast<int>(SharedRank::kCalls)) << p;
    EXPECT_EQ(ended[p], 3 + static_cast<int>(SharedRank::kCalls)) << p;
  }
}

TEST(SharedMemoryCommunicator, MeetingsHaveTheNamesOfTheirCalls) {
  const auto engines = make_engines(2);
  const Communicators ranks = connect_by_memory(engines, {1, 1});
  std::vector<std::string> said;
  engines[1]->watch({.reported = [] { return std::optional<Error>(); },
                     .report = [](const Error&) {},
                     .begin = [&said](const char* operation) { said.emplace_back(operation); },
                     .end = [] {}});
  expect_none(on_ranks(ranks, [](Communicator& self) {
    at::Tensor values = at::full({3}, 1.0F);
    self.all_reduce(values, ReduceOp::kSum);
    self.broadcast(values, 1);
    EXPECT_EQ(self.all_gather(values).size(), 2U);
    self.barrier();
  }));
  EXPECT_EQ(said, (std::vector<std::string>{"all-reduce", "broadcast", "gather", "barrier"}));
}

// A rank may drop what the others still read.
TEST(SharedMemoryCommunicator, WhatOtherRanksSeeKeepsItsMemory) {
  const Communicators ranks = ranks_of(2);
  expect_none(on_ranks(ranks, [](Communicator& self) {
    at::Tensor own = self.new_exchanged(1000, at::kFloat);
    own.fill_(self.rank() + 1);
    const void* const place = own.const_data_ptr();
    const std::vector<at::Tensor> views = self.peer_views(own);
    ASSERT_EQ(views.size(), 2U);
    own.reset();
    const at::Tensor next = self.new_exchanged(1000, at::kFloat);
    EXPECT_NE(next.const_data_ptr(), place);
    self.barrier();
    for (int rank = 0; rank < 2; ++rank) {
      const at::Tensor& view = views[static_cast<size_t>(rank)];
      EXPECT_EQ(view.numel(), 1000);
      EXPECT_TRUE(view.eq(rank + 1).all().item<bool>()) << rank;
    }
    EXPECT_TRUE(self.peer_views(at::full({3}, 1.0F)).empty()) << "it lies in memory of its process";
    self.barrier();
  }));
}

TEST(SharedMemoryCommunicator, AnAbortEndsTheWait) {
  const Communicators ranks = ranks_of(2);
  core::Thread aborts({}, [&] {
    std::this_thread::sleep_for(milliseconds(20));
    ranks[0]->abort({ErrorCode::kIo, "the disk is gone"});
  });
  EXPECT_THAT(core::message_of([&] { ranks[0]->barrier(); }, ErrorCode::kPeerFailed), HasSubstr("the disk is gone"));
  aborts.join();
  EXPECT_THROW(ranks[0]->barrier(), Error);
}

// It has called: who looks for the call that is missing would look in vain.
TEST(SharedMemoryCommunicator, ARankThatHasCalledAndStandsStillIsNamedAsSuch) {
  const Communicators ranks = ranks_of(2);
  at::Tensor own = at::full({1000}, 1.0F), other = at::full({1000}, 2.0F);
  const auto never_done = ranks[1]->start_all_reduce(other, ReduceOp::kSum);
  ranks[0]->set_deadline(milliseconds(200));
  EXPECT_THAT(core::message_of([&] { ranks[0]->all_reduce(own, ReduceOp::kSum); }, ErrorCode::kTimeout),
              HasSubstr("got rank 1 has called and has not done its part"));
}

// Without the wake it would look again after 50 ms. The best of ten rounds, because the machine may be busy.
TEST(SharedMemoryCommunicator, ARankThatSleepsIsWoken) {
  using Clock = std::chrono::steady_clock;
  const Communicators ranks = ranks_of(2);
  auto best = Clock::duration::max();
  for (int round = 0; round < 10; ++round) {
    std::array<Clock::time_point, 2> times;
    expect_none(on_ranks(ranks, [&](Communicator& self) {
      if (self.rank() == 1) {
        std::this_thread::sleep_for(milliseconds(5));
        times[1] = Clock::now();
      }
      self.barrier();
      if (self.rank() == 0) times[0] = Clock::now();
    }));
    best = std::min(best, times[0] - times[1]);
  }
  EXPECT_LT(best, milliseconds(20));
}

std::vector<std::string> open_descriptors() {
  std::vector<std::string> targets;
  for (const auto& link : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(link, gone).string();
    if (!gone && !target.ends_with("/fd")) targets.push_back(target);
  }
  return targets;
}

std::string mappings() {
  std::string text;
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), maps) != nullptr) text += line.data();
  std::fclose(maps);
  return text;
}

TEST(SharedMemoryCommunicator, LeavesNoDescriptorsAndNoMemory) {
  const auto engines = make_engines(3);
  const size_t before = open_descriptors().size();
  at::Tensor kept;
  {
    const Communicators ranks = connect_by_memory(engines, {1, 2, 1});
    EXPECT_EQ(open_descriptors().size(), before) << ::testing::PrintToString(open_descriptors());
    kept = ranks[1]->new_exchanged(1000, at::kFloat);
    EXPECT_THAT(mappings(), HasSubstr("memfd:trainyard"));
  }
  kept.fill_(7);  // a tensor outlives its group
  EXPECT_TRUE(kept.eq(7).all().item<bool>());
  kept.reset();
  EXPECT_EQ(mappings().find("memfd:trainyard"), std::string::npos);
}

// Says that the other process has died once it has, as a process group does.
class ChildWatch final : public ExchangeWatch {
 public:
  explicit ChildWatch(pid_t child) : child_(child) {}

  void throw_if_failed() override {
    if (dead_) throw Error(ErrorCode::kPeerFailed, "rank 1 has died");
  }
  void check() override {
    dead_ = dead_ || (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == child_);
    throw_if_failed();
  }
  void fail(const Error&) override {}
  void begin_meeting(const char*) override {}
  void end_meeting() override {}
  void begin_turns() override {}
  void end_turns() override {}

 private:
  const pid_t child_;
  bool dead_ = false;
};

// All-reduces as long as it can. Returns the error.
std::optional<Error> reduce_until_error(const core::SharedMemory& memory, int process, pid_t child,
                                        const std::function<void(int)>& after) {
  const auto group = std::make_shared<SharedGroup>(core::SharedMemory::map(memory.descriptor()),
                                                   RankLayout{.process = process, .first_ranks = {0, 1, 2}});
  SharedMemoryCommunicator self(0, std::make_shared<ChildWatch>(child), group);
  self.set_deadline(std::chrono::seconds(20));
  try {
    at::Tensor values = self.new_exchanged(20'000, at::kFloat);
    for (int round = 0;; ++round) {
      values.fill_(process + 1);
      self.all_reduce(values, ReduceOp::kSum);
      if (!values.eq(3).all().item<bool>()) return Error(ErrorCode::kInternal, "a wrong sum");
      after(round);
    }
  } catch (const Error& error) {
    return error;
  }
}

TEST(SharedMemoryCommunicator, ARankThatIsKilledEndsTheOthersWait) {
  const size_t before = open_descriptors().size();
  for (const int rounds : {0, 20}) {
    std::optional<core::SharedMemory> memory(core::SharedMemory::create(size_t{64} << 20));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      reduce_until_error(*memory, 1, 0, [](int) {});
      ::_exit(1);
    }
    const auto error = reduce_until_error(*memory, 0, child, [&](int round) {
      if (round == rounds) ::kill(child, SIGKILL);
    });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 has died"));
    memory.reset();
    EXPECT_EQ(mappings().find("memfd:trainyard"), std::string::npos);
  }
  EXPECT_EQ(open_descriptors().size(), before);
}

// As many ranks as have more staging memory than a huge page, in two processes.
TEST(SharedGroup, ControlBlocksAndStagingAndArenasDoNotOverlap) {
  constexpr int kRanks = 20;
  core::SharedMemory memory = core::SharedMemory::create(size_t{64} << 20);
  core::SharedMemory mapped = core::SharedMemory::map(memory.descriptor());
  const auto first =
      std::make_shared<SharedGroup>(std::move(memory), RankLayout{.process = 0, .first_ranks = {0, 5, kRanks}});
  const auto second =
      std::make_shared<SharedGroup>(std::move(mapped), RankLayout{.process = 1, .first_ranks = {0, 5, kRanks}});
  std::vector<std::pair<int64_t, int64_t>> places;  // offset, bytes
  for (int rank = 0; rank < kRanks; ++rank) {
    places.emplace_back(first->offset_of(&first->rank(rank), sizeof(SharedRank)), sizeof(SharedRank));
    const char* const staging = first->staging(rank);
    places.emplace_back(first->offset_of(staging, SharedGroup::kStagingBytes), SharedGroup::kStagingBytes);
    EXPECT_EQ(second->offset_of(second->staging(rank), 1), first->offset_of(staging, 1)) << rank;
  }
  std::vector<at::Tensor> tensors;
  for (const auto& group : {first, second}) {
    for (const int64_t elements : {1000, 1'000'000}) {
      const at::Tensor& tensor = tensors.emplace_back(group->new_tensor(elements, at::kFloat));
      ASSERT_TRUE(tensor.defined());
      places.emplace_back(group->offset_of(tensor.const_data_ptr(), tensor.nbytes()), 4 * elements);
    }
  }
  std::sort(places.begin(), places.end());
  EXPECT_EQ(places.front().first, 0);
  for (size_t i = 1; i < places.size(); ++i) {
    EXPECT_GE(places[i].first, places[i - 1].first + places[i - 1].second) << i;
  }
}

TEST(SharedGroup, OffsetsAreThoseOfItsOwnMemory) {
  constexpr size_t kBytes = size_t{16} << 20;
  const auto group = std::make_shared<SharedGroup>(core::SharedMemory::create(kBytes),
                                                   RankLayout{.process = 0, .first_ranks = {0, 1}});
  const char* const begin = group->at(0);
  EXPECT_EQ(group->offset_of(begin, kBytes), 0);
  EXPECT_EQ(group->offset_of(begin, kBytes + 1), -1);
  EXPECT_EQ(group->offset_of(begin + kBytes - 4, 4), static_cast<int64_t>(kBytes) - 4);
  EXPECT_EQ(group->offset_of(begin + kBytes - 4, 5), -1);
  const at::Tensor elsewhere = at::full({3}, 1.0F);
  EXPECT_EQ(group->offset_of(elsewhere.const_data_ptr(), elsewhere.nbytes()), -1);
  const at::Tensor tensor = group->new_tensor(10, at::kDouble);
  ASSERT_TRUE(tensor.defined());
  const void* const found = group->at(group->offset_of(tensor.const_data_ptr(), tensor.nbytes()));
  EXPECT_EQ(found, tensor.const_data_ptr());
  EXPECT_FALSE(group->new_tensor(0, at::kFloat).defined());
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(group->new_tensor(int64_t{4} << 20, at::kFloat).defined());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no shared memory for 16777216 bytes"));
}

TEST(SharedArena, PlacesDoNotOverlapAndComeBack) {
  SharedArena arena(SharedArena::kLarge, 4 * SharedArena::kLarge);
  const auto small = arena.take(100), large = arena.take(SharedArena::kLarge + 1);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(*small, SharedArena::kLarge);
  EXPECT_EQ(*large % SharedArena::kLarge, 0U);
  EXPECT_EQ(*large, 2 * SharedArena::kLarge) << "behind the huge page of the small one";
  EXPECT_FALSE(arena.take(SharedArena::kLarge)) << "which are taken";
  const auto next = arena.take(5000);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, *small + SharedArena::kPage);
  arena.give_back(*small, 100);
  arena.give_back(*large, SharedArena::kLarge + 1);
  arena.give_back(*next, 5000);
  EXPECT_TRUE(arena.take(3 * SharedArena::kLarge)) << "all is one free place again";
}

// Asks what has ended, and fails at it.
class ThrowingWatch final : public ExchangeWatch {
 public:
  void throw_if_failed() override {}
  void check() override { throw std::out_of_range("no such process"); }
  void fail(const Error&) override {}
  void begin_meeting(const char*) override {}
  void end_meeting() override {}
  void begin_turns() override {}
  void end_turns() override {}
};

TEST(SharedMemoryCommunicator, CannotBeUsedBehindACallThatEndedWithinItsWork) {
  const auto group = std::make_shared<SharedGroup>(core::SharedMemory::create(size_t{64} << 20),
                                                   RankLayout{.process = 0, .first_ranks = {0, 1, 2}});
  SharedMemoryCommunicator self(0, std::make_shared<ThrowingWatch>(), group);
  self.set_deadline(std::chrono::seconds(20));
  EXPECT_THROW(self.barrier(), std::out_of_range);
  EXPECT_EQ(core::message_of([&] { self.barrier(); }, ErrorCode::kPeerFailed),
            "a collective has ended within its work");
}

}  // namespace
}  // namespace trainyard::parallel::shared_memory_communicator_test
