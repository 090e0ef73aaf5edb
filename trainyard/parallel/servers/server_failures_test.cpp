// Who is named when a worker or a server dies, freezes or makes no progress.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/optimizer_settings.h"
#include "trainyard/parallel/servers/transport.h"
#include "trainyard/parallel/servers/wire.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/parallel/testing/server_cluster.h"

namespace trainyard::parallel::server_failures_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

const RankDeadlines kShort{.start = milliseconds(3000), .step = milliseconds(1500)};

ParameterServer::MakeOptimizers sgd() {
  return {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }};
}

struct Parameters {
  Parameters() {
    set.declare({.name = "w", .shape = {3}, .init = nn::Initializer::ones()});
    set.allocate();
    set.initialize(1);
    optimizer = sgd()[0](set);
  }
  void join(ServerGroup& group) {
    group.join(set, {optimizer.get()});
    group.start(set, {optimizer.get()}, 0);
  }
  void step(ServerGroup& group) {
    group.push(set.gradients(), {.learning_rate = 0.1}, *optimizer, 0);
    group.read_values(set.values());
  }
  nn::ParameterSet set;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Returns the error of a worker that trains until it has one.
std::string trains_until_error(ServerGroup& group, Parameters& own) {
  return core::message_of(
      [&] {
        for (int step = 0; step < 1000000; ++step) own.step(group);
      },
      core::ErrorCode::kPeerFailed);
}

TEST(ServerFailures, AWorkerThatDiesIsNamedByAll) {
  ServerCluster cluster({.workers = 3, .servers = 2}, sgd());
  std::vector<std::string> errors(3);
  std::vector<core::Thread> threads;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back(core::ThreadOptions{}, [&, w] {
      auto group = cluster.join(w);
      Parameters own;
      own.join(*group);
      for (int step = 0; w == 1 && step < 3; ++step) own.step(*group);
      if (w == 1) return group.reset();  // without leave()
      errors[static_cast<size_t>(w)] = trains_until_error(*group, own);
    });
  }
  for (core::Thread& thread : threads) thread.join();
  for (const int w : {0, 2}) EXPECT_THAT(errors[static_cast<size_t>(w)], HasSubstr("worker 1 has died"));
  for (const int s : {0, 1}) {
    EXPECT_THAT(core::message_of([&] { cluster.server(s).wait(); }, core::ErrorCode::kPeerFailed),
                HasSubstr("worker 1 has died"));
  }
}

TEST(ServerFailures, AServerThatDiesIsNamedByAll) {
  ServerCluster cluster({.workers = 2, .servers = 2}, sgd());
  std::vector<std::string> errors(2);
  std::atomic<int> stepped = 0;
  std::vector<core::Thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back(core::ThreadOptions{}, [&, w] {
      auto group = cluster.join(w);
      Parameters own;
      own.join(*group);
      own.step(*group);
      ++stepped;
      errors[static_cast<size_t>(w)] = trains_until_error(*group, own);
    });
  }
  while (stepped < 2) std::this_thread::yield();
  cluster.end_server(1);
  for (core::Thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("parameter server 1"));
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("parameter server 1"));
}

TEST(ServerFailures, AWorkerThatDoesNotGoOnIsNamed) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kShort);
  std::string error;
  std::atomic<bool> ended = false;
  core::Thread stuck({}, [&] {
    auto group = cluster.join(1);
    Parameters own;
    own.join(*group);
    own.step(*group);
    while (!ended) std::this_thread::sleep_for(milliseconds(5));  // its heartbeats are sent by a thread of their own
  });
  auto group = cluster.join(0);
  Parameters own;
  own.join(*group);
  error = trains_until_error(*group, own);
  ended = true;
  EXPECT_THAT(error, AllOf(HasSubstr("worker 1 does not go on"), HasSubstr("step 1")));
}

// kStaged answers a push at once, and the chief waits for its update when it reads the state.
TEST(ServerFailures, AWorkerThatTheChiefWaitsForToReadTheStateIsNamed) {
  ServerCluster cluster({.workers = 2, .servers = 2, .mode = ServerMode::kStaged}, sgd(), kShort);
  std::atomic<bool> ended = false;
  core::Thread stuck({}, [&] {
    auto group = cluster.join(1);
    Parameters own;
    own.join(*group);
    while (!ended) std::this_thread::sleep_for(milliseconds(5));
  });
  auto group = cluster.join(0);
  Parameters own;
  own.join(*group);
  own.step(*group);
  const std::string error = core::message_of([&] { group->read_state(own.set.values(), {own.optimizer.get()}); },
                                             core::ErrorCode::kPeerFailed);
  ended = true;
  EXPECT_THAT(error, AllOf(HasSubstr("worker 1 does not go on"), HasSubstr("read the state")));
}

// A worker that has registered by hand, and sends no heartbeat.
TEST(ServerFailures, AWorkerWithoutHeartbeatsIsNamed) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kShort);
  const auto channel = connect_to_server(cluster.addresses()[0], {});
  Parameters own;
  wire::RegisterRequest request{.worker = 1, .workers = 2, .servers = 1, .replicas = 1, .optimizers = 1};
  request.settings = optimizer_settings(*own.optimizer);
  request.tensors = {{.name = "w", .shape = {3}, .decay = true}};
  std::atomic<bool> registered = false;
  channel->call(ServerCall::kRegister, {.head = encode(request)}, [&](const CallOutcome& outcome) {
    EXPECT_EQ(outcome.kind, CallOutcome::Kind::kAnswered);
    registered = true;
  });
  while (!registered) std::this_thread::yield();
  auto group = cluster.join(0);
  own.join(*group);
  EXPECT_THAT(trains_until_error(*group, own), HasSubstr("worker 1 does not answer"));
}

// A worker that waits for nothing at a server hears why that one has ended in its next call.
TEST(ServerFailures, AServerThatEndsTellsThoseThatCallLater) {
  ServerCluster cluster({.workers = 1, .servers = 1}, sgd());
  const auto channel = connect_to_server(cluster.addresses()[0], {});
  const auto call = [&](ServerCall what, std::string head) {
    std::promise<CallOutcome> outcome;
    channel->call(what, {.head = std::move(head)}, [&](CallOutcome ended) { outcome.set_value(std::move(ended)); });
    return outcome.get_future().get();
  };
  wire::RegisterRequest request{.workers = 1, .servers = 1, .replicas = 1, .optimizers = 1};
  request.settings = optimizer_settings(*Parameters().optimizer);
  request.tensors = {{.name = "w", .shape = {3}, .decay = true}};
  const CallOutcome registered = call(ServerCall::kRegister, encode(request));
  cluster.server(0).fail(core::Error(core::ErrorCode::kPeerFailed, "the first cause"));
  core::Thread ends({}, [&] { cluster.end_server(0); });
  std::this_thread::sleep_for(milliseconds(100));
  const CallOutcome outcome =
      call(ServerCall::kAttend,
           encode(wire::AttendRequest{.from = {.token = wire::decode<wire::RegisterReply>(registered.message).token}}));
  EXPECT_EQ(outcome.kind, CallOutcome::Kind::kRefused);
  ASSERT_TRUE(outcome.error);
  EXPECT_THAT(outcome.error->what(), HasSubstr("the first cause"));
  channel->cancel();
}

// A worker that a test plays, message by message.
class PlayedWorker {
 public:
  PlayedWorker(const ServerCluster& cluster, uint64_t worker)
      : channel_(connect_to_server(cluster.addresses()[0], {})) {
    wire::RegisterRequest request{.worker = worker, .workers = 2, .servers = 1, .replicas = 1, .optimizers = 1};
    request.settings = optimizer_settings(*Parameters().optimizer);
    request.tensors = {{.name = "w", .shape = {3}, .decay = true}};
    const CallOutcome outcome = call(ServerCall::kRegister, encode(request));
    from_ = {.worker = worker, .token = wire::decode<wire::RegisterReply>(outcome.message).token};
    channel_->call(ServerCall::kAttend, {.head = encode(wire::AttendRequest{.from = from_})},
                   [](const CallOutcome&) {});
    call(ServerCall::kStatus, encode(wire::AttendRequest{.from = from_}));  // the server has seen both
  }
  ~PlayedWorker() { end(); }
  // Returns whether the server has taken it.
  bool beat(wire::BeatRequest request = {.operation = "push", .step = 2}) {
    request.from = from_;
    return call(ServerCall::kBeat, encode(request)).kind == CallOutcome::Kind::kAnswered;
  }
  // Closes the connection without a reason, as the system does where a process ends.
  void end() { channel_->cancel(); }

 private:
  CallOutcome call(ServerCall call, std::string head) {
    std::promise<CallOutcome> outcome;
    channel_->call(call, {.head = std::move(head)}, [&](CallOutcome ended) { outcome.set_value(std::move(ended)); });
    return outcome.get_future().get();
  }

  std::unique_ptr<ServerChannel> channel_;
  wire::Sender from_;
};

// A server waits a second for those that do not know. The fastest of some: a busy machine makes any of them late.
TEST(ServerFailures, AServerDoesNotWaitForWorkersThatKnowWhyItEnds) {
  auto least = std::chrono::steady_clock::duration::max();
  for (int round = 0; round < 3; ++round) {
    ServerCluster cluster({.workers = 2, .servers = 1}, sgd());
    const PlayedWorker attends(cluster, 1);
    cluster.server(0).fail(core::Error(core::ErrorCode::kPeerFailed, "the first cause"));
    const auto begin = std::chrono::steady_clock::now();
    cluster.end_server(0);
    least = std::min(least, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(least, milliseconds(900));
}

// Worker 1 is frozen; worker 0 sees it elsewhere and ends before the server has waited for worker 1's deadline.
TEST(ServerFailures, WhoWasSilentIsNamedBeforeWhoEndsBehindIt) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), {.start = milliseconds(3000), .step = milliseconds(3000)});
  PlayedWorker frozen(cluster, 1), waits(cluster, 0);
  frozen.beat();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < milliseconds(2000)) {
    waits.beat();
    std::this_thread::sleep_for(milliseconds(20));
  }
  waits.end();
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("worker 1 does not answer"));
}

TEST(ServerFailures, WhoEndsIsNamedWhereTheOthersAreHeard) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd());
  PlayedWorker other(cluster, 1), ends(cluster, 0);
  ends.beat();
  other.beat();
  ends.end();
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("worker 0 has died: step 2, push"));
}

// The process groups of two workers.
std::vector<std::shared_ptr<ProcessGroup>> two_ranks(milliseconds deadline = kPatientDeadlines.step) {
  const uint16_t port = free_port();
  std::vector<std::shared_ptr<ProcessGroup>> groups(2);
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [&groups, rank, port, deadline] {
      groups[static_cast<size_t>(rank)] = std::make_shared<ProcessGroup>(
          ProcessRank{.rank = rank, .size = 2, .master_address = "127.0.0.1", .master_port = port}, deadline);
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return groups;
}

// Worker 1 tells the processes only; worker 0, which waits for the servers, hears of it and tells these.
TEST(ServerFailures, WhatTheProcessesSayEndsTheWaitForServers) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kPatientDeadlines);
  auto processes = two_ranks();
  std::string error;
  core::Thread waits({}, [&] {
    auto group = cluster.join(0);
    group->fail_with(processes[0]);
    Parameters own;
    own.join(*group);
    error = trains_until_error(*group, own);
  });
  auto group = cluster.join(1);
  Parameters own;
  own.join(*group);
  processes[1]->report({core::ErrorCode::kIo, "the disk is gone"});
  waits.join();
  EXPECT_THAT(error, HasSubstr("rank 1: the disk is gone"));
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("rank 1: the disk is gone"));
}

// The other way round: worker 0 hears of a server's verdict, and the other processes hear of it by worker 0.
TEST(ServerFailures, WhatAServerSaysReachesTheProcesses) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kPatientDeadlines);
  auto processes = two_ranks();
  auto group = cluster.join(0);
  group->fail_with(processes[0]);
  auto other = cluster.join(1);
  Parameters own, others;
  core::Thread joins({}, [&] { others.join(*other); });
  own.join(*group);
  joins.join();
  cluster.server(0).fail({core::ErrorCode::kPeerFailed, "worker 7 does not answer"});
  while (!processes[1]->reported()) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_THAT(processes[1]->reported()->what(), HasSubstr("rank 0: worker 7 does not answer"));
}

// Workers of one step behind them, each with its process group. Worker 1 makes no progress from then on.
struct WorkersOfAGroup {
  WorkersOfAGroup(const ServerCluster& cluster, milliseconds deadline_of_processes)
      : processes(two_ranks(deadline_of_processes)) {
    std::vector<core::Thread> threads;
    for (size_t w = 0; w < 2; ++w) {
      groups[w] = cluster.join(static_cast<int>(w));
      groups[w]->fail_with(processes[w]);
      processes[w]->progress("step", 1);
      threads.emplace_back(core::ThreadOptions{}, [this, w] {
        own[w].join(*groups[w]);
        own[w].step(*groups[w]);
      });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  std::vector<std::shared_ptr<ProcessGroup>> processes;
  std::array<std::shared_ptr<ServerGroup>, 2> groups;
  std::array<Parameters, 2> own;
};

// Worker 1 is held in a meeting of the processes that is over, worker 0 waits for its push. The processes leave the
// verdict to the server, or they would blame worker 0, which waits in no meeting.
TEST(ServerFailures, WhoWaitsForAPushIsNotBlamedByTheProcesses) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kShort);
  WorkersOfAGroup workers(cluster, kShort.step);
  workers.processes[1]->begin_meeting();
  workers.processes[0]->begin_meeting();
  workers.processes[0]->end_meeting();
  std::this_thread::sleep_for(milliseconds(500));  // worker 1 has waited the longest
  EXPECT_THAT(trains_until_error(*workers.groups[0], workers.own[0]), HasSubstr("worker 1 does not go on"));
}

// Worker 0 waits for worker 1 in a meeting of the processes, which worker 1 has not reached: it waits for the server,
// or is held behind its push. The processes name worker 1 then; the server blames neither.
TEST(ServerFailures, WhoWaitsForAProcessIsNotBlamedByTheServers) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kShort);
  PlayedWorker pushes(cluster, 1), meets(cluster, 0);
  wire::BeatRequest waits{
      .operation = "step", .step = 2, .begun = 2, .done = 2, .state = wire::WorkerState::kWaitsForProcesses};
  const wire::BeatRequest in_push{
      .operation = "push", .step = 2, .begun = 3, .done = 2, .state = wire::WorkerState::kWaitsForServers};
  const auto both_live = [&] { return pushes.beat(in_push) && meets.beat(waits); };
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 2 * kShort.step) {
    ASSERT_TRUE(both_live());
    std::this_thread::sleep_for(milliseconds(20));
  }
  waits.state = wire::WorkerState::kWorks;
  while (both_live()) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("worker 0 does not go on: step 2, step"));
}

// Worker 1 is held where its chunks have arrived, before it says that its push is complete. Both have begun the push.
TEST(ServerFailures, WhoIsHeldWithinAPushIsNamed) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd(), kShort);
  PlayedWorker held(cluster, 1), waits(cluster, 0);
  wire::BeatRequest push{
      .operation = "push", .step = 2, .begun = 3, .done = 2, .state = wire::WorkerState::kWaitsForServers};
  wire::BeatRequest works = push;
  works.state = wire::WorkerState::kWorks;
  while (waits.beat(push) && held.beat(works)) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(core::message_of([&] { cluster.server(0).wait(); }, core::ErrorCode::kPeerFailed),
              HasSubstr("worker 1 does not go on: step 2, push"));
}

const ClusterOptions kOwnPace{.workers = 2, .servers = 1, .mode = ServerMode::kAsynchronous};

// Its heartbeats go on, and no one waits for it.
TEST(ServerFailures, WhoGetsNothingDoneAtItsOwnPaceIsNamed) {
  ServerCluster cluster(kOwnPace, sgd(), kShort);
  std::atomic<bool> ended = false;
  core::Thread chief({}, [&] {
    auto group = cluster.join(0);
    Parameters own;
    own.join(*group);
    own.step(*group);
    while (!ended) std::this_thread::sleep_for(milliseconds(5));
  });
  auto group = cluster.join(1);
  Parameters own;
  own.join(*group);
  const std::string error = trains_until_error(*group, own);
  ended = true;
  EXPECT_THAT(error, AllOf(HasSubstr("worker 0 does not go on: step 1"), HasSubstr("got nothing done for 1.5 s")));
}

// As an evaluation counts its layers, or a save its tensors.
TEST(ServerFailures, ALongTaskAtItsOwnPacePasses) {
  ServerCluster cluster(kOwnPace, sgd(), kShort);
  std::atomic<bool> ended = false;
  core::Thread chief({}, [&] {
    auto group = cluster.join(0);
    Parameters own;
    own.join(*group);
    own.step(*group);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 2 * kShort.step) {
      core::count_work();
      std::this_thread::sleep_for(milliseconds(50));
    }
    own.step(*group);
    group->leave();
    ended = true;
  });
  auto group = cluster.join(1);
  Parameters own;
  own.join(*group);
  while (!ended) own.step(*group);
  group->leave();
  EXPECT_NO_THROW(cluster.wait());
}

// A server whose process is stopped accepts connections and answers nothing.
TEST(ServerFailures, AServerThatDoesNotAnswerIsNamed) {
  std::mutex mutex;
  std::vector<std::shared_ptr<ServerResponder>> kept;
  const auto frozen = listen_for_workers(
      "127.0.0.1:0", {},
      [&](ServerCall call, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
        if (call == ServerCall::kRegister) {
          return responder->reply(
              {.head = encode(wire::RegisterReply{.token = 5, .end = 16, .total = 16, .slots = {0}})});
        }
        const std::lock_guard lock(mutex);
        kept.push_back(responder);
      });
  const std::string address = fmt::format("127.0.0.1:{}", frozen->port());
  Parameters own;
  {
    ServerGroup group({.addresses = {address}, .deadlines = kShort});
    EXPECT_THAT(core::message_of([&] { own.join(group); }, core::ErrorCode::kPeerFailed),
                HasSubstr("parameter server 0 at " + address + " does not answer"));
  }
  const std::lock_guard lock(mutex);
  kept.clear();
}

TEST(ServerFailures, WorkersThatNeverComeAreNamed) {
  ServerCluster cluster({.workers = 3, .servers = 1}, sgd(), kShort);
  auto group = cluster.join(1);
  Parameters own;
  EXPECT_THAT(core::message_of([&] { own.join(*group); }, core::ErrorCode::kTimeout),
              AllOf(HasSubstr("2 of 3 workers have not come"), HasSubstr("nothing from worker 0, 2")));
}

TEST(ServerFailures, AServerThatNeverComesIsNamed) {
  Parameters own;
  ServerGroup group(
      {.cluster = {.servers = 1}, .addresses = {"127.0.0.1:1"}, .deadlines = {.start = milliseconds(500)}});
  EXPECT_THAT(core::message_of([&] { own.join(group); }, core::ErrorCode::kTimeout),
              HasSubstr("in vain for parameter server 0 at 127.0.0.1:1"));
}

// A worker waits for a server that is late, and says so.
TEST(ServerFailures, AWorkerWaitsForALateServer) {
  uint16_t port = 0;
  { port = ParameterServer({}, sgd()).port(); }
  const std::string address = fmt::format("127.0.0.1:{}", port);
  std::unique_ptr<ParameterServer> server;
  core::Thread late({}, [&] {
    std::this_thread::sleep_for(milliseconds(2500));
    server = std::make_unique<ParameterServer>(ParameterServerOptions{.address = address}, sgd());
  });
  ::testing::internal::CaptureStderr();
  ServerGroup group({.addresses = {address}});
  Parameters own;
  own.join(group);
  own.step(group);
  group.leave();
  late.join();
  server->wait();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("worker 0 waits for parameter server 0 at " + address));
}

TEST(ServerFailures, AWorkerThatLeavesEarlyEndsTheOthers) {
  ServerCluster cluster({.workers = 2, .servers = 2}, sgd());
  core::Thread other({}, [&] {
    auto group = cluster.join(1);
    Parameters own;
    own.join(*group);
    own.step(*group);
    group->leave();
  });
  auto group = cluster.join(0);
  Parameters own;
  own.join(*group);
  EXPECT_THAT(trains_until_error(*group, own), HasSubstr("worker 1 has left, and others still train"));
}

TEST(ServerFailures, WorkersThatDisagreeAreRefused) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd());
  Parameters own;
  auto first = cluster.join(0);
  first->join(own.set, {own.optimizer.get()});
  const auto refusal = [&](ServerGroupOptions options, nn::ParameterSet& set) {
    ServerGroup group(std::move(options));
    return core::message_of([&] { group.join(set, {own.optimizer.get()}); });
  };
  EXPECT_THAT(refusal(cluster.worker(0), own.set), HasSubstr("two processes are the same worker"));
  ServerGroupOptions other = cluster.worker(1);
  other.cluster.mode = ServerMode::kAsynchronous;
  EXPECT_THAT(refusal(other, own.set), HasSubstr("different trainings"));
  nn::ParameterSet longer;
  longer.declare({.name = "w", .shape = {4}});
  longer.allocate();
  EXPECT_THAT(refusal(cluster.worker(1), longer), AllOf(HasSubstr("different variables"), HasSubstr("worker 1, w")));
}

TEST(ServerFailures, AWorkerOfTheNextTrainingWaitsForItsServer) {
  ServerCluster cluster({.workers = 1, .servers = 1}, sgd());
  {
    auto group = cluster.join(0);
    Parameters own;
    own.join(*group);
    own.step(*group);
    group->leave();
  }
  cluster.server(0).wait();  // its training is over, and it still listens
  ServerGroupOptions other = cluster.worker(0);
  other.cluster.mode = ServerMode::kAsynchronous;  // the next training has flags of its own
  std::atomic<bool> joined = false;
  core::Thread worker({}, [&] {
    auto group = std::make_shared<ServerGroup>(other);
    Parameters own;
    own.join(*group);
    joined = true;
    own.step(*group);
    group->leave();
  });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(joined);
  cluster.end_server(0);
  ParameterServer next({.cluster = other.cluster, .address = cluster.addresses()[0]}, sgd());
  worker.join();
  next.wait();
  EXPECT_TRUE(joined);
}

TEST(ServerFailures, AWorkerThatHasLeftCannotJoinAgain) {
  ServerCluster cluster({.workers = 2, .servers = 1}, sgd());
  Parameters own, again;
  auto first = cluster.join(0);
  first->join(own.set, {own.optimizer.get()});
  first->leave();
  EXPECT_THAT(core::message_of([&] { cluster.join(0)->join(again.set, {again.optimizer.get()}); }),
              AllOf(HasSubstr("a worker that has left cannot join again"), HasSubstr("worker 0")));
}

}  // namespace
}  // namespace trainyard::parallel::server_failures_test
