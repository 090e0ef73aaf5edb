// What a worker refuses of the answers of servers. Real ones give none of them: a test plays the servers.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/parallel/servers/transport.h"
#include "trainyard/parallel/servers/wire.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::parallel::server_answers_test {
namespace {

using core::Says;

constexpr RankDeadlines kDeadlines{.start = std::chrono::seconds(20), .step = std::chrono::seconds(20)};

// Registers each worker for the same part, answers each read with as many bytes, and all else with an empty message.
class PlayedServer {
 public:
  explicit PlayedServer(wire::RegisterReply part, size_t bytes_of_reads = 64)
      : part_(std::move(part)),
        read_(bytes_of_reads, '\0'),
        listener_(listen_for_workers(
            "127.0.0.1:0", {},
            [this](ServerCall call, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
              responder->reply(answer(call));
            })) {}

  std::string address() const { return fmt::format("127.0.0.1:{}", listener_->port()); }

 private:
  OutgoingMessage answer(ServerCall call) const {
    if (call == ServerCall::kRegister) return {.head = wire::encode(part_)};
    if (call != ServerCall::kRead) return {};
    return {.head = wire::encode_read_reply(read_.size()), .data = read_.data(), .bytes = read_.size()};
  }

  const wire::RegisterReply part_;
  const std::string read_;
  const std::unique_ptr<ServerListener> listener_;
};

// Three parameters, for which a set has 16 elements.
struct ThreeParameters {
  explicit ThreeParameters(const std::string& name) {
    set.declare({.name = "w", .shape = {3}});
    set.allocate();
    optimizer = optim::optimizers().get(name)(set, {});
  }
  std::vector<optim::Optimizer*> optimizers() const { return {optimizer.get()}; }

  nn::ParameterSet set;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Returns what a worker says of servers that register it for these parts, without their addresses.
std::string refusal_of(const std::vector<wire::RegisterReply>& parts) {
  std::vector<std::unique_ptr<PlayedServer>> servers;
  ServerGroupOptions options{.cluster = {.servers = static_cast<int>(parts.size())}, .deadlines = kDeadlines};
  for (const wire::RegisterReply& part : parts) {
    servers.push_back(std::make_unique<PlayedServer>(part));
    options.addresses.push_back(servers.back()->address());
  }
  ThreeParameters own("sgd");
  ServerGroup group(options);
  std::string said = core::message_of([&] { group.join(own.set, own.optimizers()); }, core::ErrorCode::kCorruptData);
  for (const std::string& address : options.addresses) {
    const std::string text = " at " + address;
    if (const size_t begin = said.find(text); begin != std::string::npos) said.erase(begin, text.size());
  }
  return said;
}

TEST(ServerAnswers, PartsMustBeThoseOfAllParameters) {
  const auto refused = [](const std::string& server, const std::string& expected, const std::string& actual) {
    return Says("servers do not divide the parameters as they must: " + server + ": expected elements from " +
                expected + ", of 16, got " + actual + "; pass the same flags to all servers");
  };
  EXPECT_EQ(refusal_of({{.token = 5, .end = 16, .total = 16, .slots = {0}}}), "no error");
  EXPECT_THAT(refusal_of({{.token = 5, .end = 16, .total = 17, .slots = {0}}}),
              refused("parameter server 0", "0 on", "[0, 16) of 17"));
  EXPECT_THAT(refusal_of({{.token = 5, .begin = 1, .end = 16, .total = 16, .slots = {0}}}),
              refused("parameter server 0", "0 on", "[1, 16) of 16"));
  EXPECT_THAT(refusal_of({{.token = 5, .end = 8, .total = 16, .slots = {0}}}),
              Says("servers do not hold all parameters: expected 16, got 8"));
  const wire::RegisterReply first{.token = 5, .end = 8, .total = 16, .slots = {0}};
  wire::RegisterReply second{.token = 6, .begin = 8, .end = 16, .total = 16, .slots = {0}};
  EXPECT_EQ(refusal_of({first, second}), "no error");
  second.begin = 9;
  EXPECT_THAT(refusal_of({first, second}), refused("parameter server 1", "8 on", "[9, 16) of 16"));
  second = {.token = 6, .begin = 8, .end = 4, .total = 16, .slots = {0}};
  EXPECT_THAT(refusal_of({first, second}), refused("parameter server 1", "8 on", "[8, 4) of 16"));
  second = {.token = 6, .begin = 8, .end = 16, .total = 16, .slots = {1}};
  EXPECT_THAT(refusal_of({first, second}), refused("parameter server 1", "8 on", "[8, 16) of 16"));
}

// A heartbeat during the first push says its step, from which on the deadline of a step counts.
TEST(ServerAnswers, HeartbeatsOfTheFirstPushAreOfStepZero) {
  std::mutex mutex;
  std::shared_ptr<ServerResponder> push;  // guarded: answered by the first heartbeat behind it
  std::vector<int64_t> steps;             // guarded
  const auto listener = listen_for_workers(
      "127.0.0.1:0", {},
      [&](ServerCall call, const IncomingMessage& message, const std::shared_ptr<ServerResponder>& responder) {
        const std::lock_guard lock(mutex);
        if (call == ServerCall::kPush) {
          push = responder;
          return;
        }
        if (call == ServerCall::kBeat && push) {
          const auto beat = wire::decode<wire::BeatRequest>(message);
          if (beat.operation == "push") {
            steps.push_back(beat.step);
            std::exchange(push, nullptr)->reply({});
          }
        }
        const wire::RegisterReply part{.token = 5, .end = 16, .total = 16, .slots = {0}};
        responder->reply(call == ServerCall::kRegister ? OutgoingMessage{.head = wire::encode(part)}
                                                       : OutgoingMessage{});
      });
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {fmt::format("127.0.0.1:{}", listener->port())}, .deadlines = kDeadlines});
  group.join(own.set, own.optimizers());
  group.push(own.set.gradients(), {.learning_rate = 0.1}, *own.optimizer, 0);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(steps, (std::vector<int64_t>{0}));
}

TEST(ServerAnswers, AHeartbeatThatIsRefusedEndsTheWorker) {
  const auto listener = listen_for_workers(
      "127.0.0.1:0", {},
      [](ServerCall call, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
        if (call == ServerCall::kBeat) return responder->refuse({core::ErrorCode::kPeerFailed, "the server is full"});
        const wire::RegisterReply part{.token = 5, .end = 16, .total = 16, .slots = {0}};
        responder->reply(call == ServerCall::kRegister ? OutgoingMessage{.head = wire::encode(part)}
                                                       : OutgoingMessage{});
      });
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {fmt::format("127.0.0.1:{}", listener->port())},
                     .deadlines = {.start = std::chrono::seconds(20), .step = std::chrono::seconds(3)}});
  group.join(own.set, own.optimizers());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto push_until_error = [&] {
    while (std::chrono::steady_clock::now() < until) {
      group.push(own.set.gradients(), {.learning_rate = 0.1}, *own.optimizer, 0);
    }
  };
  EXPECT_THAT(core::message_of(push_until_error, core::ErrorCode::kPeerFailed), Says("the server is full"));
}

// They are sent, and received, where they are.
TEST(ServerAnswers, BlocksMustHaveNoGaps) {
  const PlayedServer server({.token = 5, .end = 16, .total = 16, .slots = {0}});
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {server.address()}, .deadlines = kDeadlines});
  group.join(own.set, own.optimizers());
  group.start(own.set, own.optimizers(), 0);
  const at::Tensor gaps = at::zeros({4, 4}).t();
  const auto refused = Says("servers need blocks in host memory without gaps");
  EXPECT_THAT(core::message_of([&] { group.read_values(gaps); }, core::ErrorCode::kInternal), refused);
  EXPECT_THAT(core::message_of([&] { group.push(gaps, {.learning_rate = 0.1}, *own.optimizer, 0); },
                               core::ErrorCode::kInternal),
              refused);
}

TEST(ServerAnswers, ValuesOfAnotherLengthAreRefused) {
  const PlayedServer server({.token = 5, .end = 16, .total = 16, .slots = {0}}, 60);
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {server.address()}, .deadlines = kDeadlines});
  EXPECT_EQ(group.updates(), 0) << "before it has joined";
  group.join(own.set, own.optimizers());
  group.start(own.set, own.optimizers(), 0);
  EXPECT_THAT(core::message_of([&] { group.read_values(own.set.values()); }, core::ErrorCode::kCorruptData),
              Says("a server answers with another number of bytes", "parameter server 0 at " + server.address(),
                   "expected 64, got 60"));
}

// An optimizer's count of updates would not be read at all.
TEST(ServerAnswers, CountsThatAreMissingAreRefused) {
  const PlayedServer server({.token = 5, .end = 16, .total = 16, .slots = {2}});
  ThreeParameters own("tf_adam");
  ServerGroup group({.addresses = {server.address()}, .deadlines = kDeadlines});
  group.join(own.set, own.optimizers());
  group.start(own.set, own.optimizers(), 0);
  EXPECT_THAT(
      core::message_of([&] { group.read_state(own.set.values(), own.optimizers()); }, core::ErrorCode::kCorruptData),
      Says("a server has other counts of updates"));
}

TEST(ServerAnswers, ARegistrationThatIsNoMessageIsRefused) {
  const auto listener = listen_for_workers(
      "127.0.0.1:0", {}, [](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
        responder->reply({.head = "\xff"});
      });
  const std::string address = fmt::format("127.0.0.1:{}", listener->port());
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {address}, .deadlines = kDeadlines});
  const std::string said =
      core::message_of([&] { group.join(own.set, own.optimizers()); }, core::ErrorCode::kCorruptData);
  EXPECT_THAT(said, ::testing::HasSubstr("bytes are no message"));
  EXPECT_THAT(said, ::testing::HasSubstr("parameter server 0 at " + address));
}

TEST(ServerAnswers, WhyAServerIsNotReachedIsSaid) {
  ThreeParameters own("sgd");
  ServerGroup group({.addresses = {"127.0.0.1:1"}, .deadlines = {.start = std::chrono::milliseconds(300)}});
  const std::string said = core::message_of([&] { group.join(own.set, own.optimizers()); }, core::ErrorCode::kTimeout);
  EXPECT_THAT(said, ::testing::StartsWith("worker 0 has waited "));
  EXPECT_THAT(said, ::testing::HasSubstr(" s in vain for parameter server 0 at 127.0.0.1:1: start: got "));
  EXPECT_EQ(said.find("no answer"), std::string::npos) << said;
}

TEST(ServerAnswers, AHeartbeatSaysThatItsWorkerWaitsForTheProcesses) {
  std::mutex mutex;
  std::vector<wire::WorkerState> states;  // guarded
  const auto listener = listen_for_workers(
      "127.0.0.1:0", {},
      [&](ServerCall call, const IncomingMessage& message, const std::shared_ptr<ServerResponder>& responder) {
        if (call == ServerCall::kBeat) {
          const std::lock_guard lock(mutex);
          states.push_back(wire::decode<wire::BeatRequest>(message).state);
        }
        const wire::RegisterReply part{.token = 5, .end = 16, .total = 16, .slots = {0}};
        responder->reply(call == ServerCall::kRegister ? OutgoingMessage{.head = wire::encode(part)}
                                                       : OutgoingMessage{});
      });
  const auto wait_for = [&](wire::WorkerState state) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < until) {
      {
        const std::lock_guard lock(mutex);
        if (std::find(states.begin(), states.end(), state) != states.end()) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& processes) {
    if (processes->rank() == 1) {  // comes late to what rank 0 waits for
      EXPECT_TRUE(wait_for(wire::WorkerState::kWaitsForProcesses));
      processes->gather("all", "");
      return;
    }
    ThreeParameters own("sgd");
    ServerGroup group({.addresses = {fmt::format("127.0.0.1:{}", listener->port())},
                       .deadlines = {.start = std::chrono::seconds(20), .step = std::chrono::seconds(3)}});
    group.fail_with(processes);
    group.join(own.set, own.optimizers());
    EXPECT_TRUE(wait_for(wire::WorkerState::kWorks));
    processes->gather("all", "");
    group.leave();
  });
}

}  // namespace
}  // namespace trainyard::parallel::server_answers_test
