// Processes as threads: each has an engine of its own, and their messages lie in memory. tests/processes_test.py runs
// the same over MPI.
#include "trainyard/parallel/collectives/process_communicator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"

namespace trainyard::parallel::process_communicator_test {
namespace {

using core::Communicator, core::Error, core::ErrorCode, core::ReduceOp, std::chrono::milliseconds, ::testing::HasSubstr;

constexpr milliseconds kLong = kLongDeadline;

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

at::Tensor random_values(int rank, int64_t elements, at::ScalarType type) {
  core::RandomStream stream(1, "values", {static_cast<uint64_t>(rank)});
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) values.mutable_data_ptr<float>()[i] = 10 * stream.normal();
  return values.to(type);
}

// Layouts of the same four replicas, and others, that exchange messages or share memory.
class ProcessCommunicatorLayouts : public testing::TestWithParam<std::tuple<std::vector<int>, HostExchange>> {
 protected:
  const std::vector<int>& replicas() const { return std::get<0>(GetParam()); }
  Communicators connect_all() {
    return connect(engines_, replicas(), kLong, choose_algorithm, std::get<1>(GetParam()));
  }
  std::vector<std::shared_ptr<ProcessEngine>> engines_ = make_engines(static_cast<int>(replicas().size()));
};
INSTANTIATE_TEST_SUITE_P(Processes, ProcessCommunicatorLayouts,
                         testing::Combine(testing::Values(std::vector{4}, std::vector{2, 2}, std::vector{1, 1, 1, 1},
                                                          std::vector{1, 3}, std::vector{2, 1, 3}, std::vector{1}),
                                          testing::Values(HostExchange::kMessages, HostExchange::kSharedMemory)));

TEST_P(ProcessCommunicatorLayouts, SumsHaveTheBitsOfThreads) {
  Communicators communicators = connect_all();
  const auto ranks = static_cast<int>(communicators.size());
  const int64_t piece = kChunkBytes / 4;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
      if (!can_reduce(type, op)) continue;
      for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1000}, 2 * piece, 6 * piece + 7}) {
        if (elements > 1000 && type != at::kFloat && type != at::kBFloat16) continue;
        std::vector<at::Tensor> inputs;
        for (int rank = 0; rank < ranks; ++rank) inputs.push_back(random_values(rank, elements, type));
        const auto reduce = [&](Communicators& group) {
          std::vector<at::Tensor> results(group.size());
          expect_none(on_ranks(group, [&](Communicator& self) {
            const auto own = static_cast<size_t>(self.rank());
            results[own] = inputs[own].clone();
            self.all_reduce(results[own], op);
          }));
          return results;
        };
        Communicators threads = make_thread_communicators(ranks);
        const at::Tensor expected = reduce(threads)[0];
        for (const at::Tensor& result : reduce(communicators)) {
          ASSERT_TRUE(equal_bits(result, expected)) << c10::toString(type) << " " << elements;
        }
      }
    }
  }
}

TEST_P(ProcessCommunicatorLayouts, RanksCountReplicasInTheOrderOfProcesses) {
  Communicators communicators = connect_all();
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    EXPECT_EQ(communicators[rank]->rank(), static_cast<int>(rank));
    EXPECT_EQ(communicators[rank]->size(), static_cast<int>(communicators.size()));
  }
}

// Addresses are those of one process, and what is added there has the order of ranks.
TEST(ProcessCommunicatorViews, AreOfReplicasOfOneProcessInTheOrderOfRanks) {
  const auto views_of = [](const std::vector<int>& replicas, const AlgorithmChoice& choose) {
    const auto engines = make_engines(static_cast<int>(replicas.size()));
    const Communicators group = connect(engines, replicas, kLong, choose);
    std::vector<size_t> counts(group.size());
    expect_none(on_ranks(group, [&counts](Communicator& self) {
      const at::Tensor own = at::full({2, 3}, 1.0F + static_cast<float>(self.rank()));
      const std::vector<at::Tensor> views = self.peer_views(own);
      for (size_t rank = 0; rank < views.size(); ++rank) {
        EXPECT_EQ(views[rank][1][2].item<float>(), 1.0F + static_cast<float>(rank));
      }
      counts[static_cast<size_t>(self.rank())] = views.size();
      self.barrier();  // the others have read
    }));
    return counts;
  };
  EXPECT_EQ(views_of({2}, choose_algorithm), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(views_of({1, 1}, choose_algorithm), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(views_of({2}, AllReduceOptions{.spec = "ring"}.choice()), (std::vector<size_t>{0, 0}));
}

TEST_P(ProcessCommunicatorLayouts, BroadcastFromEveryRoot) {
  Communicators communicators = connect_all();
  const auto ranks = static_cast<int>(communicators.size());
  expect_none(on_ranks(communicators, [&](Communicator& self) {
    for (int root = 0; root < ranks; ++root) {
      for (const int64_t elements : {int64_t{0}, int64_t{3}, 2 * kChunkBytes + 5}) {
        at::Tensor tensor = at::full({elements}, 10 * root + self.rank(), at::kByte);
        self.broadcast(tensor, root);
        EXPECT_TRUE(tensor.eq(11 * root).all().item<bool>()) << root << " " << elements;
      }
    }
  }));
}

TEST_P(ProcessCommunicatorLayouts, AllGatherInRankOrder) {
  Communicators communicators = connect_all();
  expect_none(on_ranks(communicators, [&](Communicator& self) {
    for (const int64_t elements : {int64_t{0}, int64_t{5}, kChunkBytes / 4 + 3}) {
      const std::vector<at::Tensor> all = self.all_gather(random_values(self.rank(), elements, at::kFloat));
      ASSERT_EQ(static_cast<int>(all.size()), self.size());
      for (int rank = 0; rank < self.size(); ++rank) {
        EXPECT_TRUE(equal_bits(all[static_cast<size_t>(rank)], random_values(rank, elements, at::kFloat)));
      }
      all[0].fill_(self.rank());  // nobody else sees it
      self.barrier();
      EXPECT_TRUE(all[0].eq(self.rank()).all().item<bool>());
    }
  }));
}

TEST_P(ProcessCommunicatorLayouts, ABarrierIsPassedOnlyWhenAllHaveCome) {
  Communicators communicators = connect_all();
  std::atomic<int> come = 0;
  expect_none(on_ranks(communicators, [&](Communicator& self) {
    for (int round = 1; round <= 20; ++round) {
      ++come;
      self.barrier();
      EXPECT_GE(come.load(), round * self.size());
    }
  }));
}

TEST_P(ProcessCommunicatorLayouts, MachinesHaveNames) {
  Communicators communicators = connect_all();
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  expect_none(on_ranks(communicators, [&](Communicator& self) {
    EXPECT_EQ(machines_of(self), std::vector<std::string>(static_cast<size_t>(self.size()), name.data()));
  }));
}

TEST_P(ProcessCommunicatorLayouts, TextOfTheFirst) {
  std::vector<core::Thread> processes;
  const std::string text("any\0bytes", 9);
  for (const auto& engine : engines_) {
    processes.emplace_back(core::ThreadOptions{}, [&, engine] {
      const auto communicator = make_communicator_of_processes(engine, kLong);
      EXPECT_EQ(text_of_first(*communicator, engine->process() == 0 ? text : "another"), text);
      EXPECT_EQ(text_of_first(*communicator, ""), "");
    });
  }
  for (core::Thread& process : processes) process.join();
}

class ProcessCommunicator : public testing::TestWithParam<HostExchange> {
 protected:
  static Communicators connect_ranks(const std::vector<std::shared_ptr<ProcessEngine>>& engines,
                                     const std::vector<int>& replicas, milliseconds deadline = kLong) {
    return connect(engines, replicas, deadline, choose_algorithm, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Exchanges, ProcessCommunicator,
                         testing::Values(HostExchange::kMessages, HostExchange::kSharedMemory));

// Gradients in one group while layers use the other, as batch norm over replicas does: each rank in an order of its
// own.
TEST_P(ProcessCommunicator, GroupsDoNotWaitForEachOther) {
  const auto engines = make_engines(2);
  Communicators gradients = connect_ranks(engines, {1, 2}), layers = connect_ranks(engines, {1, 2});
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < 3; ++rank) {
    for (Communicators* group : {&gradients, &layers}) {
      threads.emplace_back(core::ThreadOptions{}, [&layers, group, rank] {
        for (int i = 0; i < 300; ++i) {
          at::Tensor values =
              at::full({group == &layers ? 8 : 300'000}, static_cast<float>(rank) + static_cast<float>(i));
          (*group)[rank]->all_reduce(values, ReduceOp::kSum);
          ASSERT_TRUE(values.eq(3 + 3 * i).all().item<bool>()) << i;
        }
      });
    }
  }
  for (core::Thread& thread : threads) thread.join();
}

void expect_all(const std::vector<std::optional<Error>>& errors, ErrorCode code,
                const std::vector<std::string>& parts) {
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    ASSERT_TRUE(errors[rank]) << rank;
    EXPECT_EQ(errors[rank]->code(), code) << errors[rank]->what();
    for (const std::string& part : parts) EXPECT_THAT(errors[rank]->what(), HasSubstr(part));
  }
}

TEST_P(ProcessCommunicator, DifferentCallsAreAnErrorOnAllRanks) {
  const std::vector<std::function<void(Communicator&, bool)>> calls = {
      [](Communicator& self, bool other) { self.all_reduce(at::full({other ? 3 : 1'000'000}, 1.0F), ReduceOp::kSum); },
      [](Communicator& self, bool other) {
        self.all_reduce(at::full({300'000}, 1.0F), other ? ReduceOp::kMax : ReduceOp::kSum);
      },
      [](Communicator& self, bool other) {
        self.all_reduce(at::full({9}, 1, other ? at::kLong : at::kInt), ReduceOp::kSum);
      },
      [](Communicator& self, bool other) { other ? self.barrier() : self.broadcast(at::full({9}, 1.0F), 0); },
      [](Communicator& self, bool other) { self.broadcast(at::full({9}, 1.0F), other ? 1 : 0); },
      [](Communicator& self, bool other) { self.all_gather(at::full({other ? 2 : 3}, 1.0F)); },
  };
  for (const auto& call : calls) {
    for (const int odd : {0, 1, 2, 3}) {
      Communicators communicators = connect_ranks(make_engines(3), {1, 2, 1});
      expect_all(on_ranks(communicators, [&](Communicator& self) { call(self, self.rank() == odd); }),
                 ErrorCode::kInvalidArgument, {"ranks called different collectives", "on rank"});
      // Nothing goes on after it.
      for (const auto& error : on_ranks(communicators, [](Communicator& self) { self.barrier(); })) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
      }
    }
  }
}

TEST_P(ProcessCommunicator, ATensorThatCannotBeUsedIsAnErrorOnAllRanks) {
  for (const int odd : {0, 1, 2}) {
    Communicators communicators = connect_ranks(make_engines(2), {2, 1});
    expect_all(on_ranks(communicators,
                        [&](Communicator& self) {
                          const at::Tensor wide = at::full({4, 4}, 1.0F);
                          self.all_reduce(self.rank() == odd ? wide.t() : wide, ReduceOp::kSum);
                        }),
               ErrorCode::kInvalidArgument,
               {"a collective cannot be done", "rank " + std::to_string(odd), "not contiguous"});
  }
}

TEST_P(ProcessCommunicator, ADeadlineNamesWhoIsMissing) {
  Communicators communicators = connect_ranks(make_engines(2), {1, 2}, milliseconds(200));
  const auto errors = on_ranks(communicators, [](Communicator& self) {
    if (self.rank() != 2) self.barrier();
  });
  EXPECT_EQ(errors[1]->code(), ErrorCode::kTimeout);
  // Messages say from which process nothing comes.
  EXPECT_THAT(errors[0]->what(), HasSubstr(GetParam() == HostExchange::kMessages ? "nothing from rank 1 or behind"
                                                                                 : "no call from rank 2"));
  EXPECT_THAT(errors[1]->what(), HasSubstr("no call from rank 2"));
  const auto later = on_ranks(communicators, [](Communicator& self) { self.barrier(); });
  for (const auto& error : later) EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
}

// What a process group does: what one process reports, all see.
TEST_P(ProcessCommunicator, AnAbortWakesAllRanksOfAllProcesses) {
  const auto engines = make_engines(3);
  Communicators communicators = connect_ranks(engines, {1, 1, 2});
  std::mutex mutex;
  std::optional<Error> reported;
  for (const auto& engine : engines) {
    engine->watch({.reported =
                       [&] {
                         const std::lock_guard lock(mutex);
                         return reported;
                       },
                   .report =
                       [&](const Error& error) {
                         const std::lock_guard lock(mutex);
                         if (!reported) reported = Error(ErrorCode::kPeerFailed, error.detail());
                       }});
  }
  const auto errors = on_ranks(communicators, [](Communicator& self) {
    if (self.rank() == 3) return self.abort({ErrorCode::kIo, "the disk is gone"});
    self.all_reduce(at::full({1'000'000}, 1.0F), ReduceOp::kSum);
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->code(), ErrorCode::kPeerFailed);
    EXPECT_THAT(errors[rank]->what(), HasSubstr("the disk is gone"));
  }
}

TEST_P(ProcessCommunicator, AnExchangeEndsWhenAllHaveFinished) {
  const auto engines = make_engines(2);
  Communicators communicators = connect_ranks(engines, {1, 1});
  expect_none(on_ranks(communicators, [](Communicator& self) { self.barrier(); }));
  for (const auto& engine : engines) engine->finish(kLong);
}

}  // namespace
}  // namespace trainyard::parallel::process_communicator_test
