#include "trainyard/parallel/collectives/process_engine.h"

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"

namespace trainyard::parallel::process_engine_test {
namespace {

using core::Error, core::ErrorCode, core::message_of, std::chrono::milliseconds, ::testing::HasSubstr;

constexpr auto kTimeout = milliseconds(30'000);

// What carries nothing, and whose end waits for the others.
class WaitingTransport final : public MessageTransport {
 public:
  explicit WaitingTransport(std::shared_future<void> others) : others_(std::move(others)) {
    process_ = 1;
    processes_ = 2;
  }
  std::unique_ptr<Transfer> send(int, int, const void*, size_t) override { throw std::logic_error("nothing is sent"); }
  std::unique_ptr<Transfer> receive(int, int, void*, size_t) override { throw std::logic_error("nothing comes"); }
  void finish() override { others_.wait(); }

 private:
  const std::shared_future<void> others_;
};

// What carries nothing, and counts how many of its kind there are.
class CountedTransport final : public MessageTransport {
 public:
  explicit CountedTransport(std::atomic<int>& count) : count_(count) { ++count_; }
  ~CountedTransport() override { --count_; }
  CountedTransport(const CountedTransport&) = delete;
  CountedTransport& operator=(const CountedTransport&) = delete;
  std::unique_ptr<Transfer> send(int, int, const void*, size_t) override { throw std::logic_error("nothing is sent"); }
  std::unique_ptr<Transfer> receive(int, int, void*, size_t) override { throw std::logic_error("nothing comes"); }
  void finish() override {}

 private:
  std::atomic<int>& count_;
};

// Two processes that exchange with each other, from the place of the first.
struct TwoProcesses {
  std::shared_ptr<ProcessEngine> engine, other;
  std::unique_ptr<core::Communicator> own, peer;
};

TwoProcesses two_processes() {
  const auto transports = make_memory_transports(2);
  const auto engine = ProcessEngine::start(transports[0], kTimeout),
             other = ProcessEngine::start(transports[1], kTimeout);
  return {engine, other, make_communicator_of_processes(engine, kTimeout),
          make_communicator_of_processes(other, kTimeout)};
}

TEST(ProcessEngine, KnowsItsPlace) {
  const auto transports = make_memory_transports(3);
  const auto engine = ProcessEngine::start(transports[2], kTimeout);
  EXPECT_EQ(engine->process(), 2);
  EXPECT_EQ(engine->processes(), 3);
}

TEST(ProcessEngine, ThrowsWhyItsTransportCannotBeOpened) {
  const auto refuse = []() -> std::unique_ptr<MessageTransport> {
    throw Error(ErrorCode::kUnsupported, "there is no network");
  };
  EXPECT_THAT(message_of([&] { ProcessEngine::start(refuse, kTimeout); }, ErrorCode::kUnsupported),
              HasSubstr("there is no network"));
}

TEST(ProcessEngine, AStartWithoutTheOthersHasADeadline) {
  std::promise<void> others;
  const auto wait = [come = others.get_future().share()]() -> std::unique_ptr<MessageTransport> {
    come.wait();
    return std::make_unique<WaitingTransport>(come);
  };
  EXPECT_THAT(message_of([&] { ProcessEngine::start(wait, milliseconds(50)); }, ErrorCode::kTimeout),
              HasSubstr("did not start within 0.05 s"));
  // What is reported meanwhile comes first.
  const PeerWatch peers{.reported = [] { return Error(ErrorCode::kPeerFailed, "rank 1 has died"); }};
  EXPECT_THAT(message_of([&] { ProcessEngine::start(wait, kTimeout, peers); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 1 has died"));
  others.set_value();
}

// Whose connection breaks as soon as it is used.
class BrokenTransport final : public MessageTransport {
 public:
  BrokenTransport() {
    process_ = 1;
    processes_ = 2;
  }
  std::unique_ptr<Transfer> send(int, int, const void*, size_t) override { throw broken(); }
  std::unique_ptr<Transfer> receive(int, int, void*, size_t) override { throw broken(); }
  void finish() override {}

 private:
  static Error broken() { return {ErrorCode::kPeerFailed, "rank 0 has closed its connection"}; }
};

// Returns what a collective throws when its connection breaks, and leaves in `reports` what the others are told.
std::string thrown_when_broken(PeerWatch peers, std::vector<std::string>& reports,
                               ErrorCode code = ErrorCode::kPeerFailed) {
  peers.report = [&reports, then = peers.report](const Error& error) {
    reports.emplace_back(error.what());
    if (then) then(error);
  };
  const auto engine = ProcessEngine::start([] { return std::make_unique<BrokenTransport>(); }, kTimeout, peers);
  const auto communicator = make_communicator_of_processes(engine, kTimeout);
  return message_of([&] { communicator->barrier(); }, code);
}

// A process that hears of a failure ends and closes its connections, and may be faster than the report of that failure.
TEST(ProcessEngine, ABrokenConnectionIsNotTheCauseWhereTheOthersNameAnother) {
  std::vector<std::string> reports;
  const auto begin = std::chrono::steady_clock::now();
  const auto reported = [begin]() -> std::optional<Error> {
    if (std::chrono::steady_clock::now() - begin < milliseconds(300)) return std::nullopt;
    return Error(ErrorCode::kPeerFailed, "rank 2 has died");
  };
  EXPECT_THAT(thrown_when_broken({.reported = reported}, reports), HasSubstr("rank 2 has died"));
  EXPECT_TRUE(reports.empty());
}

TEST(ProcessEngine, ABrokenConnectionThatNobodyElseNamesIsReportedAndAnswered) {
  std::vector<std::string> reports;
  std::atomic<bool> told = false;
  const auto reported = [&told]() -> std::optional<Error> {
    if (!told) return std::nullopt;
    return Error(ErrorCode::kPeerFailed, "another rank has failed");
  };
  EXPECT_THAT(thrown_when_broken({.reported = reported, .report = [&told](const Error&) { told = true; }}, reports),
              HasSubstr("another rank has failed"));
  EXPECT_EQ(reports.size(), 1U);
  EXPECT_THAT(reports.at(0), HasSubstr("rank 0 has closed its connection"));
  // Without an answer it is this one.
  EXPECT_THAT(thrown_when_broken({.reported = [] { return std::optional<Error>(); }}, reports),
              HasSubstr("rank 0 has closed its connection"));
}

// The thread that asks has no caller who would hear of it.
TEST(ProcessEngine, ABrokenConnectionIsThatOfAGroupThatCannotBeAsked) {
  std::vector<std::string> reports;
  const auto fails_in_thread = [caller = std::this_thread::get_id()](auto throws) {
    return [=]() -> std::optional<Error> {
      if (std::this_thread::get_id() != caller) throws();
      return std::nullopt;
    };
  };
  const auto ended = [] { throw Error(ErrorCode::kPeerFailed, "the group of processes has ended"); };
  EXPECT_EQ(thrown_when_broken({.reported = fails_in_thread(ended)}, reports), "the group of processes has ended");
  const auto no_memory = [] { throw std::bad_alloc(); };
  EXPECT_THAT(thrown_when_broken({.reported = fails_in_thread(no_memory)}, reports, ErrorCode::kInternal),
              HasSubstr("the other processes cannot be asked"));
  EXPECT_TRUE(reports.empty());
}

TEST(ProcessEngine, AnEndWithoutTheOthersHasADeadline) {
  std::promise<void> others;
  auto engine = ProcessEngine::start(
      [come = others.get_future().share()] { return std::make_unique<WaitingTransport>(come); }, kTimeout);
  EXPECT_THAT(message_of([&] { engine->finish(milliseconds(50)); }, ErrorCode::kTimeout),
              HasSubstr("process 1 waited 0.05 s for the others to end"));
  engine.reset();  // does not wait for them either
  others.set_value();
}

TEST(ProcessEngine, LendsItsTransportBetweenCollectives) {
  const TwoProcesses two = two_processes();
  const auto exchange_once = [&] {
    core::Thread others({.name = "peer"}, [&] { two.peer->barrier(); });
    two.own->barrier();
    others.join();
  };
  exchange_once();
  std::thread::id used_by;
  two.engine->run_on_transport(
      [&](MessageTransport& transport) {
        used_by = std::this_thread::get_id();
        EXPECT_EQ(transport.processes(), 2);
      },
      kTimeout);
  EXPECT_NE(used_by, std::thread::id());
  EXPECT_NE(used_by, std::this_thread::get_id());
  // What the work throws is its caller's, and the exchange continues.
  const auto all_reduce = [](MessageTransport& transport) { transport.all_reduce_sum(nullptr, 0); };
  EXPECT_THAT(message_of([&] { two.engine->run_on_transport(all_reduce, kTimeout); }, ErrorCode::kUnsupported),
              HasSubstr("no collectives of its own"));
  exchange_once();
}

TEST(ProcessEngine, WorkThatDoesNotReturnHasADeadline) {
  std::promise<void> returns;
  auto engine = ProcessEngine::start(make_memory_transports(1)[0], kTimeout);
  const auto wait = [returned = returns.get_future().share()](MessageTransport&) { returned.wait(); };
  EXPECT_THAT(message_of([&] { engine->run_on_transport(wait, milliseconds(50)); }, ErrorCode::kTimeout),
              HasSubstr("process 0 waited 0.05 s for the transport"));
  EXPECT_THROW(engine->run_on_transport([](MessageTransport&) {}, kTimeout), Error);
  engine.reset();  // does not wait for it either
  returns.set_value();
}

TEST(ProcessEngine, AnErrorOfTheTransportEndsAllWaits) {
  std::optional<Error> reported;  // outlives the engine, whose thread reports behind the end of the waits
  auto engine =
      ProcessEngine::start([] { return std::make_unique<WaitingTransport>(std::shared_future<void>()); }, kTimeout);
  engine->watch({.report = [&](const Error& error) { reported = error; }});
  auto communicator = make_communicator_of_processes(engine, kTimeout);
  EXPECT_THAT(message_of([&] { communicator->barrier(); }, ErrorCode::kInternal), HasSubstr("nothing comes"));
  EXPECT_THAT(message_of([&] { communicator->barrier(); }, ErrorCode::kPeerFailed), HasSubstr("nothing comes"));
  communicator.reset();
  engine.reset();
  ASSERT_TRUE(reported);
  EXPECT_THAT(reported->what(), HasSubstr("nothing comes"));
}

// Only an engine whose thread is in a call that may never end leaves its transport behind.
TEST(ProcessEngine, EndsItsTransport) {
  std::atomic<int> left = 0;
  const auto start = [&left] {
    return ProcessEngine::start([&left] { return std::make_unique<CountedTransport>(left); }, kTimeout);
  };
  auto engine = start();
  EXPECT_EQ(left, 1);
  engine.reset();
  EXPECT_EQ(left, 0) << "without use";
  left = 0;
  engine = start();
  engine->run_on_transport([](MessageTransport&) {}, kTimeout);
  engine.reset();
  EXPECT_EQ(left, 0) << "behind work on the transport";
  left = 0;
  engine = start();
  engine->finish(kTimeout);
  engine.reset();
  EXPECT_EQ(left, 0) << "behind its finish";
}

TEST(ProcessEngine, NamesEachOperation) {
  std::vector<std::string> said;
  const TwoProcesses two = two_processes();
  two.engine->watch({.begin = [&said](const char* operation) { said.emplace_back(operation); }});
  const auto call_all = [](core::Communicator& self) {
    at::Tensor tensor = at::ones({3});
    self.all_reduce(tensor, core::ReduceOp::kSum);
    self.broadcast(tensor, 0);
    EXPECT_EQ(self.all_gather(tensor).size(), 2U);
    self.barrier();
  };
  core::Thread others({.name = "peer"}, [&] { call_all(*two.peer); });
  call_all(*two.own);
  others.join();
  EXPECT_EQ(said, (std::vector<std::string>{"all-reduce", "broadcast", "gather", "barrier"}));
}

TEST(ProcessEngine, SaysWhatItWaitsForAndWhetherItRuns) {
  const TwoProcesses two = two_processes();
  std::vector<std::string> said;
  std::promise<void> ended;
  two.engine->watch({.begin = [&](const char* operation) { said.emplace_back(operation); },
                     .end =
                         [&] {
                           said.emplace_back("end");
                           ended.set_value();
                         }});
  const auto turns = two.engine->turns();
  EXPECT_FALSE(turns());
  at::Tensor tensor = at::ones({3}), others_tensor = at::ones({3});
  core::Thread waits({.name = "waits"}, [&] { two.own->all_reduce(tensor, core::ReduceOp::kSum); });
  std::optional<int64_t> first;
  while (!first) first = turns();
  while (turns() == first) std::this_thread::yield();
  two.peer->all_reduce(others_tensor, core::ReduceOp::kSum);
  waits.join();
  ended.get_future().wait();
  EXPECT_FALSE(turns());
  EXPECT_EQ(said, (std::vector<std::string>{"all-reduce", "end"}));
}

// The processor is for the others while a rank waits long: a turn takes 200 us then, by its sleep.
TEST(ProcessEngine, RestsBetweenTurnsThatMoveNothing) {
  const TwoProcesses two = two_processes();
  core::Thread waits({.name = "waits"}, [&] { two.own->barrier(); });
  const auto turns = two.engine->turns();
  while (turns().value_or(0) < 2000) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = std::chrono::steady_clock::now();
  const int64_t before = turns().value();
  std::this_thread::sleep_for(milliseconds(200));
  const int64_t made = turns().value() - before;
  EXPECT_LE(made, (std::chrono::steady_clock::now() - begin) / std::chrono::microseconds(200) + 2);
  two.peer->barrier();
  waits.join();
}

// The others hear of it before a caller of this process does, who may end the process.
TEST(ProcessEngine, ABrokenConnectionIsReportedBeforeWaitsEnd) {
  std::atomic<bool> told = false;
  const auto engine = ProcessEngine::start([] { return std::make_unique<BrokenTransport>(); }, kTimeout,
                                           {.report = [&told](const Error&) {
                                             std::this_thread::sleep_for(milliseconds(100));
                                             told = true;
                                           }});
  const auto communicator = make_communicator_of_processes(engine, kTimeout);
  EXPECT_THAT(message_of([&] { communicator->barrier(); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has closed its connection"));
  EXPECT_TRUE(told);
}

// A group that cannot be asked is one that has failed.
TEST(ProcessEngine, EndsWaitsWhenTheOthersCannotBeAsked) {
  const TwoProcesses two = two_processes();
  two.own->set_deadline(std::chrono::seconds(5));
  two.engine->watch({.reported = []() -> std::optional<Error> {
    throw Error(ErrorCode::kPeerFailed, "the group of processes has ended");
  }});
  EXPECT_EQ(message_of([&] { two.own->barrier(); }, ErrorCode::kPeerFailed), "the group of processes has ended");
}

TEST(MessageTransport, HasNoCollectivesUnlessALibraryGivesThem) {
  const auto transport = make_memory_transports(1)[0]();
  const std::string problem = "the transport between the processes has no collectives of its own: ";
  float value = 1;
  EXPECT_EQ(message_of([&] { transport->barrier(); }, ErrorCode::kUnsupported), problem + "barrier: expected MPI");
  EXPECT_EQ(message_of([&] { transport->all_reduce_sum(&value, 1); }, ErrorCode::kUnsupported),
            problem + "all-reduce: expected MPI");
}

}  // namespace
}  // namespace trainyard::parallel::process_engine_test
