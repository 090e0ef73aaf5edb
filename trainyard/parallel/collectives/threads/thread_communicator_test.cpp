#include "trainyard/parallel/collectives/threads/thread_communicator.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/testing/faulty_communicator.h"

namespace trainyard::parallel::thread_communicator_test {
namespace {

using core::Communicator, core::Error, core::ErrorCode, core::ReduceOp, std::chrono::milliseconds;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

// Runs the body on a thread for each rank. Returns each rank's error.
std::vector<std::optional<Error>> run_ranks(Communicators& communicators,
                                            const std::function<void(Communicator&)>& body) {
  std::vector<std::optional<Error>> errors(communicators.size());
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
      try {
        body(*communicators[rank]);
      } catch (const Error& error) {
        errors[rank] = error;
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return errors;
}

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

at::Tensor random_tensor(int rank, int64_t elements) {
  core::RandomStream stream(1, "tensor", {static_cast<uint64_t>(rank)});
  at::Tensor tensor = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) tensor.mutable_data_ptr<float>()[i] = stream.normal();
  return tensor;
}

class ThreadCommunicatorSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadCommunicatorSizes, testing::Values(1, 2, 3, 4));

TEST_P(ThreadCommunicatorSizes, AllReduceHasTheSameBitsOnEveryRankAndInEveryRun) {
  const int size = GetParam();
  for (int64_t elements : {0, 1, 3, 64, 65, 1000, 100'003}) {
    // In rank order, as float: what a plain loop gives.
    at::Tensor expected = random_tensor(0, elements);
    for (int rank = 1; rank < size; ++rank) expected += random_tensor(rank, elements);
    auto communicators = make_thread_communicators(size);
    std::vector<at::Tensor> tensors(size);
    expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
      tensors[self.rank()] = random_tensor(self.rank(), elements);
      self.all_reduce(tensors[self.rank()], ReduceOp::kSum);
    }));
    for (const at::Tensor& tensor : tensors) EXPECT_TRUE(same_bits(tensor, expected)) << elements;
  }
}

TEST_P(ThreadCommunicatorSizes, OperationsAndShapes) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    const auto reduced = [&](ReduceOp op) {
      at::Tensor tensor = at::full({2, 3, 5}, static_cast<float>(self.rank() + 1));
      self.all_reduce(tensor, op);
      EXPECT_EQ(tensor.min().item<float>(), tensor.max().item<float>());
      return tensor[1][2][4].item<float>();
    };
    EXPECT_EQ(reduced(ReduceOp::kSum), static_cast<float>(size * (size + 1)) / 2);
    EXPECT_EQ(reduced(ReduceOp::kMean), static_cast<float>(size + 1) / 2);
    EXPECT_EQ(reduced(ReduceOp::kMax), static_cast<float>(size));
    EXPECT_EQ(reduced(ReduceOp::kMin), 1);
  }));
}

TEST_P(ThreadCommunicatorSizes, BroadcastFromEveryRoot) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    for (int root = 0; root < size; ++root) {
      // Any dtype: flags and counters travel too.
      at::Tensor tensor = at::full({7}, self.rank() * 10 + root, at::kByte);
      self.broadcast(tensor, root);
      EXPECT_EQ(tensor.min().item<int>(), root * 11);
      EXPECT_EQ(tensor.max().item<int>(), root * 11);
    }
  }));
}

TEST_P(ThreadCommunicatorSizes, AllGatherInRankOrder) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    const at::Tensor mine = at::full({2, 2}, self.rank(), at::kLong);
    const std::vector<at::Tensor> all = self.all_gather(mine);
    ASSERT_EQ(static_cast<int>(all.size()), size);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(all[rank].sizes(), mine.sizes());
      EXPECT_EQ(all[rank].sum().item<int64_t>(), 4 * rank);
    }
    EXPECT_NE(all[self.rank()].const_data_ptr(), mine.const_data_ptr());
  }));
}

TEST_P(ThreadCommunicatorSizes, BarrierWaitsForAll) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  std::atomic<int> arrived = 0;
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    for (int round = 1; round <= 200; ++round) {
      arrived += 1;
      self.barrier();
      EXPECT_GE(arrived, round * size);
      self.barrier();
    }
  }));
}

// Long mixed sequences find a rank that runs ahead into the next call while another still reads.
TEST_P(ThreadCommunicatorSizes, KeepsNoTensorAliveBetweenCalls) {
  auto communicators = make_thread_communicators(GetParam());
  const std::vector<std::function<void(Communicator&, const at::Tensor&)>> calls = {
      [](Communicator& self, const at::Tensor& tensor) { self.all_reduce(tensor, ReduceOp::kSum); },
      [](Communicator& self, const at::Tensor& tensor) { self.broadcast(tensor, 0); },
      [](Communicator& self, const at::Tensor& tensor) { self.all_gather(tensor); }};
  for (const auto& call : calls) {
    std::vector<at::Tensor> tensors;
    for (int rank = 0; rank < GetParam(); ++rank) tensors.push_back(at::full({3}, 1.0F));
    expect_no_errors(run_ranks(communicators, [&](Communicator& self) { call(self, tensors[self.rank()]); }));
    for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor.storage().use_count(), 1U);
  }
}

TEST_P(ThreadCommunicatorSizes, ManyCallsInARow) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    for (int i = 0; i < 500; ++i) {
      at::Tensor tensor = at::full({129}, static_cast<float>(self.rank() + i));
      self.all_reduce(tensor, ReduceOp::kMax);
      ASSERT_EQ(tensor.sum().item<float>(), 129.0f * static_cast<float>(size - 1 + i));
      tensor.fill_(static_cast<float>(self.rank()));
      self.broadcast(tensor, i % size);
      ASSERT_EQ(tensor[128].item<float>(), static_cast<float>(i % size));
      if (i % 10 == 0) self.barrier();
    }
  }));
}

// All ranks must get an error that names both calls, and the next call must work.
void expect_disagreement(const std::function<void(Communicator&)>& body, const std::string& expected) {
  auto communicators = make_thread_communicators(3);
  for (auto& communicator : communicators) communicator->set_deadline(std::chrono::minutes(1));
  for (const auto& error : run_ranks(communicators, body)) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error->what(), expected.c_str());
  }
  expect_no_errors(run_ranks(communicators, [](Communicator& self) { self.barrier(); }));
}

TEST(ThreadCommunicator, DifferentCallsAreAnErrorOnAllRanks) {
  const std::string remedy = "; all ranks must make the same calls in the same order";
  const auto floats = [](int64_t n) { return at::empty({n}).fill_(1); };
  expect_disagreement([&](Communicator& self) { self.all_reduce(floats(self.rank() == 1 ? 4 : 3), ReduceOp::kSum); },
                      "ranks called different collectives: expected all_reduce(sum) of Float [3] on all ranks as on "
                      "rank 0, got all_reduce(sum) of Float [4] on rank 1" +
                          remedy);
  expect_disagreement(
      [&](Communicator& self) {
        self.all_reduce(self.rank() == 2 ? floats(3).to(at::kDouble) : floats(3), ReduceOp::kSum);
      },
      "ranks called different collectives: expected all_reduce(sum) of Float [3] on all ranks as on rank 0, got "
      "all_reduce(sum) of Double [3] on rank 2" +
          remedy);
  expect_disagreement(
      [&](Communicator& self) { self.all_reduce(floats(3), self.rank() == 0 ? ReduceOp::kMax : ReduceOp::kMean); },
      "ranks called different collectives: expected all_reduce(max) of Float [3] on all ranks as on rank 0, got "
      "all_reduce(mean) of Float [3] on rank 1" +
          remedy);
  expect_disagreement([&](Communicator& self) { self.broadcast(floats(3), self.rank() == 0 ? 0 : 1); },
                      "ranks called different collectives: expected broadcast(root 0) of Float [3] on all ranks as on "
                      "rank 0, got broadcast(root 1) of Float [3] on rank 1" +
                          remedy);
  expect_disagreement(
      [&](Communicator& self) {
        if (self.rank() == 0) {
          self.barrier();
        } else {
          self.all_gather(floats(3));
        }
      },
      "ranks called different collectives: expected barrier on all ranks as on rank 0, got all_gather of Float [3] on "
      "rank 1" +
          remedy);
}

TEST(ThreadCommunicator, UnusableTensorsAreAnErrorOnAllRanks) {
  const auto all_ranks = [](const char* expected, const std::function<void(Communicator&)>& body) {
    expect_disagreement(body, std::string("a collective cannot be done: ") + expected);
  };
  all_ranks("rank 1, all_reduce(sum) of Float [2, 2]: got a tensor that is not contiguous", [](Communicator& self) {
    at::Tensor tensor = at::full({2, 2}, 1.0f);
    self.all_reduce(self.rank() == 1 ? tensor.t() : tensor, ReduceOp::kSum);
  });
  all_ranks("rank 2, broadcast(root 0) of no tensor: got an undefined tensor",
            [](Communicator& self) { self.broadcast(self.rank() == 2 ? at::Tensor() : at::full({2}, 1.0f), 0); });
  all_ranks("rank 0, broadcast(root 3) of Float [2]: got a root that is no rank",
            [](Communicator& self) { self.broadcast(at::full({2}, 1.0f), 3); });
  all_ranks("rank 0, all_reduce(mean) of Long [2]: got a dtype that cannot be reduced so",
            [](Communicator& self) { self.all_reduce(at::full({2}, 1, at::kLong), ReduceOp::kMean); });
}

// Nothing is seen where one rank's tensor is of another type, or lies in pieces or more than four dimensions.
TEST(ThreadCommunicator, RanksSeeTensorsOfOneTypeWhereTheyAre) {
  auto communicators = make_thread_communicators(2);
  expect_no_errors(run_ranks(communicators, [](Communicator& self) {
    const at::Tensor own = at::full({2, 3}, 1.0F + static_cast<float>(self.rank()));
    const std::vector<at::Tensor> views = self.peer_views(own);
    ASSERT_EQ(views.size(), 2U);
    for (int rank = 0; rank < 2; ++rank) {
      const at::Tensor& view = views[static_cast<size_t>(rank)];
      EXPECT_EQ(view.sizes(), own.sizes());
      EXPECT_EQ(view.scalar_type(), at::kFloat);
      EXPECT_EQ(view[1][2].item<float>(), 1.0F + static_cast<float>(rank));
    }
    EXPECT_EQ(views[static_cast<size_t>(self.rank())].const_data_ptr(), own.const_data_ptr());
    self.barrier();  // the other rank has read
    EXPECT_TRUE(self.peer_views(at::full({2}, 1, self.rank() == 0 ? at::kFloat : at::kDouble)).empty());
    EXPECT_TRUE(self.peer_views(self.rank() == 0 ? own : own.t()).empty());
    EXPECT_TRUE(self.peer_views(at::full({1, 1, 1, 1, 1}, 1, at::kFloat)).empty());
    EXPECT_EQ(self.peer_views(at::full({1, 1, 1, 1}, 1, at::kFloat)).size(), 2U);
    self.barrier();
  }));
}

TEST(ThreadCommunicator, NeedsARank) {
  EXPECT_THROW(make_thread_communicators(0), Error);
  EXPECT_THROW(make_thread_communicators(-1), Error);
}

TEST(ThreadCommunicator, DeadlineNamesWhoIsMissing) {
  auto communicators = make_thread_communicators(3);
  // Long enough for both ranks to come in time on a loaded machine.
  for (auto& communicator : communicators) communicator->set_deadline(milliseconds(800));
  const auto errors = run_ranks(communicators, [](Communicator& self) {
    if (self.rank() != 1) self.all_reduce(at::full({2}, 1.0f), ReduceOp::kSum);
  });
  EXPECT_FALSE(errors[1]);
  for (int rank : {0, 2}) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->code(), ErrorCode::kTimeout);
    const std::string text = errors[rank]->what();
    EXPECT_NE(text.find("waited 0.8 s for its peers: all_reduce(sum) of Float [2]: got no call from rank 1"),
              std::string::npos)
        << text;
  }
  // The late rank does not wait for those who gave up.
  communicators[1]->set_deadline(std::chrono::hours(1));
  try {
    communicators[1]->barrier();
    ADD_FAILURE() << "a communicator was used after a deadline";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
  }
}

TEST(ThreadCommunicator, AbortWakesAllWaiters) {
  auto communicators = make_thread_communicators(3);
  std::atomic<int> failed = 0;
  const auto expect_peer_failed = [&](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "a call went through after abort()";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
      EXPECT_STREQ(error.what(), "record checksum differs: shard 7");
      failed += 1;
    }
  };
  expect_no_errors(run_ranks(communicators, [&](Communicator& self) {
    if (self.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(30));
      self.abort(Error(ErrorCode::kCorruptData, {.problem = "record checksum differs", .where = "shard 7"}));
      self.abort(Error(ErrorCode::kIo, "a later error"));
    } else {
      expect_peer_failed([&] { self.all_reduce(at::full({2}, 1.0f), ReduceOp::kSum); });
    }
    expect_peer_failed([&] { self.barrier(); });
    expect_peer_failed([&] { self.all_gather(at::full({2}, 1.0f)); });
  }));
  EXPECT_EQ(failed, 2 + 6);
}

TEST(FaultyCommunicator, FailureOfOneRankReachesAllThroughAbort) {
  auto communicators = make_thread_communicators(3);
  communicators[1] =
      make_faulty_communicator(std::move(communicators[1]), {.call = 3, .kind = CommunicatorFault::Kind::kFail});
  std::atomic<int> rounds = 0;
  const auto errors = run_ranks(communicators, [&](Communicator& self) {
    try {
      for (int i = 0; i < 5; ++i) {
        self.all_reduce(at::full({2}, 1.0f), ReduceOp::kSum);
        rounds += 1;
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) self.abort(error);
      throw;
    }
  });
  EXPECT_EQ(rounds, 6);
  EXPECT_EQ(errors[1].value().code(), ErrorCode::kIo);
  EXPECT_STREQ(errors[1]->what(), "injected communication fault: rank 1, call 3");
  for (int rank : {0, 2}) {
    EXPECT_EQ(errors[rank].value().code(), ErrorCode::kPeerFailed);
    EXPECT_STREQ(errors[rank]->what(), errors[1]->what());
  }
}

TEST(FaultyCommunicator, DroppedCallIsADeadlineAndASlowOneIsNot) {
  const auto errors_with = [](CommunicatorFault fault) {
    auto communicators = make_thread_communicators(2);
    communicators[1] = make_faulty_communicator(std::move(communicators[1]), fault);
    for (auto& communicator : communicators) communicator->set_deadline(milliseconds(600));
    return run_ranks(communicators, [](Communicator& self) {
      for (int i = 0; i < 2; ++i) self.barrier();
    });
  };
  expect_no_errors(errors_with({.call = 1, .kind = CommunicatorFault::Kind::kDelay, .delay = milliseconds(50)}));
  expect_no_errors(errors_with({.call = 99, .kind = CommunicatorFault::Kind::kDrop}));
  const auto dropped = errors_with({.call = 2, .kind = CommunicatorFault::Kind::kDrop});
  EXPECT_EQ(dropped[0].value().code(), ErrorCode::kTimeout);
  EXPECT_FALSE(dropped[1]);
  const auto late = errors_with({.call = 2, .kind = CommunicatorFault::Kind::kDelay, .delay = milliseconds(1200)});
  EXPECT_EQ(late[0].value().code(), ErrorCode::kTimeout);
  EXPECT_EQ(late[1].value().code(), ErrorCode::kPeerFailed);
}

// Rank 1 finds no plan. The others, which wait for its messages, hear of it before their deadline.
TEST(ThreadCommunicator, ARankWhoseWorkFailsEndsTheExchangeOfMessages) {
  const auto choose = [](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
    if (request.layout.process == 1) throw Error(ErrorCode::kNoSpace, "there is no memory for a plan");
    return choose_algorithm(request);
  };
  auto communicators = make_thread_communicators(3, choose);
  for (auto& communicator : communicators) communicator->set_deadline(std::chrono::seconds(5));
  const auto errors =
      run_ranks(communicators, [](Communicator& self) { self.all_reduce(at::full({9}, 1.0f), ReduceOp::kSum); });
  for (size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(errors[rank]) << rank;
    EXPECT_EQ(errors[rank]->code(), rank == 1 ? ErrorCode::kNoSpace : ErrorCode::kPeerFailed) << rank;
    EXPECT_STREQ(errors[rank]->what(), "there is no memory for a plan") << rank;
  }
}

}  // namespace
}  // namespace trainyard::parallel::thread_communicator_test
