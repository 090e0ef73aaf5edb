// What a server refuses of messages that are well formed: steps that are not the next one, elements that are not its
// own, senders that it does not know. It keeps serving the others.
#include "trainyard/parallel/servers/server_service.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/servers/optimizer_settings.h"

namespace trainyard::parallel::server_service_test {
namespace {

using core::Says;
using parallel::encode;
using wire::encode;

constexpr uint64_t kElements = 600000;  // of floats: two chunks

std::unique_ptr<optim::Optimizer> momentum_of(nn::ParameterSet& set) {
  return optim::optimizers().get("tf_momentum")(set, {});
}

// What a worker says of that optimizer, whatever its parameters are.
std::string momentum_settings() {
  nn::ParameterSet set;
  set.declare({.name = "w", .shape = {1}});
  set.allocate();
  return optimizer_settings(*momentum_of(set));
}

// One worker, message by message.
class Peer {
 public:
  explicit Peer(const ClusterOptions& cluster, int64_t most_bytes = ParameterServerOptions().most_bytes)
      : server_({.cluster = cluster, .most_bytes = most_bytes}, {momentum_of}),
        channel_(connect_to_server("127.0.0.1:" + std::to_string(server_.port()), {})) {}
  ~Peer() { channel_->cancel(); }

  CallOutcome call(ServerCall call, OutgoingMessage message) {
    std::promise<CallOutcome> outcome;
    channel_->call(call, std::move(message), [&](CallOutcome ended) { outcome.set_value(std::move(ended)); });
    return outcome.get_future().get();
  }
  // Returns "answered", or the error.
  std::string ask(ServerCall call, std::string head, const std::string& data = "") {
    const CallOutcome outcome = this->call(call, {.head = std::move(head), .data = data.data(), .bytes = data.size()});
    return outcome.error ? outcome.error->what() : "answered";
  }
  // Starts a call, and returns what ask() would.
  std::future<std::string> begin(ServerCall call, std::string head) {
    const auto said = std::make_shared<std::promise<std::string>>();
    std::future<std::string> result = said->get_future();
    channel_->call(call, {.head = std::move(head)}, [said](const CallOutcome& outcome) {
      said->set_value(outcome.error ? outcome.error->what() : "answered");
    });
    return result;
  }
  wire::RegisterRequest registration(uint64_t worker) const {
    return {.worker = worker,
            .workers = static_cast<uint64_t>(server_options().workers),
            .servers = 1,
            .replicas = 1,
            .optimizers = 1,
            .settings = momentum_settings(),
            .tensors = {{.name = "w", .shape = {static_cast<int64_t>(kElements)}, .decay = true}}};
  }
  wire::Sender join(uint64_t worker) {
    const CallOutcome outcome = call(ServerCall::kRegister, {.head = encode(registration(worker))});
    return {.worker = worker, .token = wire::decode<wire::RegisterReply>(outcome.message).token};
  }
  std::string push(const wire::Sender& from, uint64_t round, uint64_t begin, size_t elements) {
    const std::string data(elements * sizeof(float), '\0');
    return ask(ServerCall::kPush, encode(wire::PushRequest{.from = from, .round = round, .begin = begin}, data.size()),
               data);
  }
  std::string push_all(const wire::Sender& from, uint64_t round) {
    constexpr uint64_t kChunk = wire::kChunkBytes / sizeof(float);
    push(from, round, 0, kChunk);
    return push(from, round, kChunk, kElements - kChunk);
  }
  std::string apply(const wire::Sender& from, uint64_t round) {
    return ask(ServerCall::kApply,
               encode(wire::ApplyRequest{.from = from, .round = round, .hyperparameters = {0.9, 0}}));
  }
  std::string start(const wire::Sender& from) {
    return ask(ServerCall::kStart, encode(wire::StartRequest{.from = from}));
  }
  std::string read(const wire::ReadRequest& request) { return ask(ServerCall::kRead, encode(request)); }
  ServerService& server() { return server_; }

 private:
  ClusterOptions server_options() const { return {.workers = static_cast<int>(server_.status().pushes.size())}; }

  ServerService server_;
  std::unique_ptr<ServerChannel> channel_;
};

// Returns which of these calls has ended first; their number where none has within 10 s.
size_t first_ended(const std::vector<std::future<std::string>>& calls) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < until) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) return i;
    }
  }
  return calls.size();
}

// Returns what the server says to a worker that registers with something changed.
std::string said_to_changed(Peer& peer, uint64_t worker, const std::function<void(wire::RegisterRequest&)>& change) {
  wire::RegisterRequest request = peer.registration(worker);
  change(request);
  return peer.ask(ServerCall::kRegister, encode(request));
}

TEST(ServerService, WarnsOfAnAddressThatOtherMachinesReach) {
  const auto warning = [](const std::string& address) {
    ::testing::internal::CaptureStderr();
    try {
      const ServerService server({.address = address}, {momentum_of});
    } catch (const core::Error&) {
      // A machine may have no IPv6. The warning is said before.
    }
    return ::testing::internal::GetCapturedStderr();
  };
  using ::testing::HasSubstr, ::testing::Not;
  EXPECT_THAT(warning("0.0.0.0:0"), HasSubstr("parameter server 0 listens at 0.0.0.0:0 without TLS"));
  for (const char* const address : {"127.0.0.1:0", "127.0.0.5:0", "[::1]:0"}) {
    EXPECT_THAT(warning(address), Not(HasSubstr("without TLS"))) << address;
  }
}

TEST(ServerService, RefusesAWorkerOfAnotherCluster) {
  Peer peer({.workers = 3});
  const auto differs_in = [](const std::string& what) {
    return Says("a worker and parameter server 0 belong to different trainings: " + what, "pass the same flags");
  };
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.workers = 2; }),
              differs_in("number of workers: expected 3, got 2"));
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.servers = 2; }),
              differs_in("number of parameter servers: expected 1, got 2"));
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.server = 1; }),
              differs_in("index of the parameter server: expected 0, got 1"));
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.replicas = 4; }),
              differs_in("replicas of a worker: expected 1, got 4"));
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.mode = 2; }), differs_in("mode: expected 0, got 2"));
  EXPECT_THAT(said_to_changed(peer, 0, [](auto& request) { request.reduction = 1; }),
              differs_in("reduction of gradients: expected 0, got 1"));
  EXPECT_EQ(said_to_changed(peer, 0, [](auto&) {}), "answered");
}

TEST(ServerService, NamesTheVariableThatWorkersHaveDifferently) {
  Peer peer({.workers = 2});
  peer.join(0);
  const auto differs_in = [](const std::string& what) {
    return Says("workers have declared different variables: worker 1, " + what + ": expected those of the worker");
  };
  EXPECT_THAT(said_to_changed(peer, 1, [](auto& request) { request.tensors.push_back({.name = "b", .shape = {1}}); }),
              differs_in("b"));
  EXPECT_THAT(said_to_changed(peer, 1, [](auto& request) { request.tensors.clear(); }), differs_in("w"));
  EXPECT_THAT(said_to_changed(peer, 1, [](auto& request) { request.tensors[0].decay = false; }), differs_in("w"));
  EXPECT_THAT(said_to_changed(peer, 1, [](auto& request) { request.is_double = true; }),
              differs_in("the type of all tensors"));
  EXPECT_EQ(said_to_changed(peer, 1, [](auto&) {}), "answered");
}

TEST(ServerService, TellsAWorkerWhatItServes) {
  Peer peer({});
  const CallOutcome outcome = peer.call(ServerCall::kRegister, {.head = encode(peer.registration(0))});
  const auto reply = wire::decode<wire::RegisterReply>(outcome.message);
  EXPECT_EQ(reply.begin, 0U);
  EXPECT_EQ(reply.end, kElements);
  EXPECT_EQ(reply.total, kElements);
  EXPECT_EQ(reply.slots, std::vector<uint64_t>{1}) << "the momentum";
}

TEST(ServerService, RefusesAStartThatMakesNoSense) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  const auto started = [&](uint64_t updates, const std::vector<double>& counts) {
    return peer.ask(ServerCall::kStart, encode(wire::StartRequest{.from = own, .updates = updates, .counts = counts}));
  };
  EXPECT_THAT(started(0, {7, 8}), Says("a worker has other counts of updates: expected 0, got 2"));
  EXPECT_THAT(started(uint64_t{1} << 63, {}), Says("an impossible step: start"));
  EXPECT_EQ(started(INT64_MAX, {}), "answered");
  EXPECT_EQ(peer.server().status().updates, INT64_MAX);
}

TEST(ServerService, RefusesToHoldUpdatesForALaterStep) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  const auto held = [&](uint64_t round) {
    return peer.ask(ServerCall::kHold, encode(wire::HoldRequest{.from = own, .held = true, .round = round}));
  };
  EXPECT_THAT(held(2), Says("values of another step are refused: worker 0: got step 2"));
  EXPECT_EQ(held(0), "answered");
}

// The second one may not take the place of the first, whose answer would be lost.
TEST(ServerService, RefusesTheSecondOfTwoCallsThatWait) {
  Peer peer({.workers = 2});
  const wire::Sender chief = peer.join(0), other = peer.join(1);
  const auto refusal = [&](ServerCall call, const std::string& head, const std::function<void()>& end) {
    std::vector<std::future<std::string>> calls;
    for (int i = 0; i < 2; ++i) calls.push_back(peer.begin(call, head));
    const size_t refused = first_ended(calls);
    if (refused == calls.size()) return std::string("both wait");
    std::string said = calls[refused].get();
    end();
    EXPECT_EQ(calls[1 - refused].get(), "answered");
    return said;
  };
  EXPECT_THAT(refusal(ServerCall::kStart, encode(wire::StartRequest{.from = other}), [&] { peer.start(chief); }),
              Says("a worker starts twice: worker 1"));
  const auto ask = [&](ServerCall call) { peer.ask(call, encode(wire::AttendRequest{.from = other})); };
  EXPECT_THAT(refusal(ServerCall::kMeet, encode(wire::AttendRequest{.from = chief}), [&] { ask(ServerCall::kMeet); }),
              Says("a worker meets the others twice: worker 0"));
  EXPECT_THAT(
      refusal(ServerCall::kAttend, encode(wire::AttendRequest{.from = other}), [&] { ask(ServerCall::kLeave); }),
      Says("a worker attends twice: worker 1"));
}

TEST(ServerService, AnUpdateWaitsForTheEndOfAHold) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  const auto hold = [&](bool held) {
    return peer.ask(ServerCall::kHold, encode(wire::HoldRequest{.from = own, .held = held}));
  };
  EXPECT_EQ(hold(true), "answered");
  peer.push_all(own, 0);
  std::future<std::string> applied =
      peer.begin(ServerCall::kApply, encode(wire::ApplyRequest{.from = own, .hyperparameters = {0.9, 0}}));
  EXPECT_EQ(applied.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(peer.server().status().updates, 0);
  EXPECT_EQ(hold(false), "answered");
  const bool ended = applied.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(ended);
  if (!ended) peer.server().fail({core::ErrorCode::kInternal, "the update does not end"});
  EXPECT_EQ(applied.get(), "answered");
  EXPECT_EQ(peer.server().status().updates, 1);
}

// Whether it has joined before or not.
TEST(ServerService, TellsEachWorkerThatCallsBehindAFailureWhatItWas) {
  Peer peer({.workers = 2});
  const wire::Sender own = peer.join(0);
  peer.server().fail({core::ErrorCode::kIo, "the disk is gone"});
  EXPECT_THAT(said_to_changed(peer, 1, [](auto&) {}), Says("the disk is gone"));
  EXPECT_THAT(peer.start(own), Says("the disk is gone"));
}

// Behind an update as many may wait again.
TEST(ServerService, AtMost64CallsOfAWorkerWait) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  const auto begin_reads = [&](int count, uint64_t round) {
    const std::string head = encode(wire::ReadRequest{.from = own, .round = round, .count = 4});
    std::vector<std::future<std::string>> reads;
    for (int i = 0; i < count; ++i) reads.push_back(peer.begin(ServerCall::kRead, head));
    return reads;
  };
  std::vector<std::future<std::string>> reads = begin_reads(65, 1);
  const size_t refused = first_ended(reads);
  peer.push_all(own, 0);
  EXPECT_EQ(peer.apply(own, 0), "answered");
  ASSERT_LT(refused, reads.size()) << "65 wait";
  for (size_t i = 0; i < reads.size(); ++i) {
    const std::string said = reads[i].get();
    if (i == refused) {
      EXPECT_THAT(said, Says("too many calls of a worker wait: expected at most 64"));
    } else {
      EXPECT_EQ(said, "answered");
    }
  }
  std::vector<std::future<std::string>> later = begin_reads(1, 2);
  EXPECT_EQ(later[0].wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  peer.push_all(own, 1);
  EXPECT_EQ(peer.apply(own, 1), "answered");
  EXPECT_EQ(later[0].get(), "answered");
}

TEST(ServerService, RefusesForgedAndStaleSteps) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  EXPECT_THAT(peer.push_all(own, 0), Says("the chief has not started the training: worker 0"));
  EXPECT_EQ(peer.start(own), "answered");
  EXPECT_THAT(peer.push_all(own, 1), Says("a push of another step is refused: worker 0: expected step 0, got step 1"));
  EXPECT_THAT(peer.apply(own, 0), Says("a push is not complete: worker 0: expected 2 chunks, got 0"));
  EXPECT_EQ(peer.push_all(own, 0), "answered");
  EXPECT_THAT(peer.push(own, 0, 0, wire::kChunkBytes / sizeof(float)), Says("elements are pushed twice: worker 0"));
  EXPECT_THAT(peer.apply(own, 1), Says("worker 0: expected step 0, got step 1"));
  EXPECT_THAT(peer.apply(own, UINT64_MAX),
              Says("a push of another step is refused", "worker 0: expected step 0, got step 18446744073709551615"));
  EXPECT_EQ(peer.apply(own, 0), "answered");
  EXPECT_THAT(peer.apply(own, 0), Says("worker 0: expected step 1, got step 0"));
  EXPECT_THAT(peer.push_all(own, 0), Says("worker 0: expected step 1, got step 0"));
  EXPECT_EQ(peer.push_all(own, 1), "answered");
  EXPECT_EQ(peer.apply(own, 1), "answered");
  EXPECT_EQ(peer.server().status().updates, 2);
}

TEST(ServerService, RefusesElementsThatAreNotItsOwn) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  constexpr uint64_t kChunk = wire::kChunkBytes / sizeof(float);
  const auto outside = [](uint64_t bytes, uint64_t begin) {
    return Says("elements that it must not be about", "parameter server 0", "of [0, 600000), got",
                fmt::format(" {} bytes from {} on", bytes, begin));
  };
  for (const auto& [begin, elements] :
       {std::pair(uint64_t{1}, size_t{16}), std::pair(uint64_t{0}, size_t{16}), std::pair(kElements, size_t{16}),
        std::pair(kChunk, size_t{kElements - kChunk + 1}), std::pair(UINT64_MAX, size_t{1}),
        std::pair(UINT64_MAX / 4 + 1, size_t{1}), std::pair(uint64_t{0}, size_t{0})}) {
    EXPECT_THAT(peer.push(own, 0, begin, elements), outside(4 * elements, begin)) << begin;
  }
  const auto write = [&](uint64_t target, uint64_t begin, size_t bytes) {
    const std::string data(bytes, '\0');
    return peer.ask(ServerCall::kWrite,
                    encode(wire::WriteRequest{.from = own, .target = target, .begin = begin}, bytes), data);
  };
  EXPECT_EQ(write(wire::kFirstSlot, 16, 64), "answered");
  EXPECT_THAT(write(wire::kFirstSlot, kElements - 1, 8), outside(8, kElements - 1));
  EXPECT_THAT(write(wire::kValues, 0, 7), outside(7, 0));
  for (const uint64_t target : {wire::kStagedValues, wire::kFirstSlot + 1, UINT64_MAX}) {
    EXPECT_THAT(write(target, 16, 64), Says("no such slot", "target " + std::to_string(target))) << target;
    EXPECT_THAT(peer.read({.from = own, .target = target, .begin = 0, .count = 16}),
                Says("no such slot", "target " + std::to_string(target)))
        << target;
  }
  EXPECT_THAT(peer.read({.from = own, .count = UINT64_MAX}), Says("a read is too long: worker 0"));
  EXPECT_THAT(peer.read({.from = own, .begin = kElements - 3, .count = 4}), outside(16, kElements - 3));
  EXPECT_THAT(peer.read({.from = own, .round = 9, .count = 4}), Says("values of another step", "worker 0: got step 9"));
  EXPECT_EQ(peer.read({.from = own, .begin = kElements - 4, .count = 4}), "answered");
}

TEST(ServerService, RefusesSendersThatItDoesNotKnow) {
  Peer peer({.workers = 2});
  const wire::Sender chief = peer.join(0), other = peer.join(1);
  EXPECT_EQ(peer.start(chief), "answered");
  for (const wire::Sender& from :
       {wire::Sender{.worker = 0, .token = chief.token + 1}, wire::Sender{.worker = 1, .token = chief.token},
        wire::Sender{.worker = 2, .token = 0}, wire::Sender{.worker = UINT64_MAX, .token = chief.token}}) {
    EXPECT_THAT(peer.push_all(from, 0), Says("not from a worker of this training: parameter server 0"));
    EXPECT_THAT(
        peer.ask(ServerCall::kFail,
                 encode(wire::FailRequest{.from = from, .error = encode(core::Error(core::ErrorCode::kIo, "x"))})),
        Says("not from a worker of this training: parameter server 0"));
    const std::vector<std::pair<ServerCall, std::string>> others{
        {ServerCall::kAttend, encode(wire::AttendRequest{.from = from})},
        {ServerCall::kBeat, encode(wire::BeatRequest{.from = from, .operation = "push", .step = 2})},
        {ServerCall::kStart, encode(wire::StartRequest{.from = from})},
        {ServerCall::kApply, encode(wire::ApplyRequest{.from = from, .hyperparameters = {0.9, 0}})},
        {ServerCall::kRead, encode(wire::ReadRequest{.from = from, .count = 4})},
        {ServerCall::kHold, encode(wire::HoldRequest{.from = from})},
        {ServerCall::kMeet, encode(wire::AttendRequest{.from = from})},
        {ServerCall::kStatus, encode(wire::AttendRequest{.from = from})},
        {ServerCall::kLeave, encode(wire::AttendRequest{.from = from})}};
    for (const auto& [call, head] : others) {
      EXPECT_THAT(peer.ask(call, head), Says("not from a worker of this training: parameter server 0"))
          << server_call_name(call);
    }
    const std::string value(4, '\0');
    EXPECT_THAT(peer.ask(ServerCall::kWrite, encode(wire::WriteRequest{.from = from}, value.size()), value),
                Says("not from a worker of this training: parameter server 0"));
  }
  const std::string data(64, '\0');
  EXPECT_THAT(peer.ask(ServerCall::kWrite, encode(wire::WriteRequest{.from = other}, data.size()), data),
              Says("only the chief writes values: worker 1"));
  EXPECT_THAT(peer.ask(ServerCall::kPush, "garbage"), Says("no data"));
  EXPECT_EQ(peer.push_all(other, 0), "answered");
}

TEST(ServerService, RefusesModelsThatItCannotHold) {
  constexpr auto kBytes = static_cast<int64_t>(kElements * sizeof(float));
  Peer peer({}, kBytes);
  const auto registered = [&](const std::function<void(wire::RegisterRequest&)>& change) {
    wire::RegisterRequest request = peer.registration(0);
    change(request);
    return peer.ask(ServerCall::kRegister, encode(request));
  };
  EXPECT_THAT(registered([](auto& request) {
                request.tensors[0].shape = {2, kElements / 2};
                request.tensors.push_back({.name = "b", .shape = {1}});
              }),
              Says("cannot hold", "expected 1 to 2400000 bytes of values, got 2 tensors of 2400004 bytes"));
  EXPECT_THAT(registered([](auto& request) { request.is_double = true; }),
              Says("1 to 2400000", "1 tensors of 4800000"));
  EXPECT_THAT(registered([](auto& request) { request.tensors.clear(); }),
              Says("1 to 2400000", "got 0 tensors of 0 bytes"));
  Peer usual({});
  wire::RegisterRequest large = usual.registration(0);
  large.tensors[0].shape = {(int64_t{1} << 34) + 1};
  EXPECT_THAT(usual.ask(ServerCall::kRegister, encode(large)),
              Says("1 to 68719476736", "1 tensors of 68719476740 bytes"));
  EXPECT_THAT(registered([](auto& request) {
                request.tensors = {{.name = "w", .shape = {1}}, {.name = "w", .shape = {1}}};
              }),
              Says("declared twice"));
  EXPECT_THAT(registered([](auto& request) { request.optimizers = 2; }),
              Says("another number of optimizers", "expected 1, got 2"));
  EXPECT_THAT(registered([](auto& request) { request.settings = "optimizer tf_nesterov\n"; }),
              Says("different optimizers: parameter server 0, worker 0: expected optimizer tf_momentum, got optimizer "
                   "tf_nesterov"));
  EXPECT_THAT(registered([](auto& request) { request.settings.clear(); }),
              Says("parameter server 0, worker 0: expected optimizer tf_momentum, got nothing"));
  EXPECT_THAT(registered([](auto& request) { request.version = wire::kVersion + 1; }),
              Says("parameter server 0", "version of the messages: expected 4, got 5"));
  EXPECT_THAT(registered([](auto& request) { request.variables = wire::variables_number(at::kBFloat16); }),
              Says("parameter server 0", "16-bit type of variables (0 none, 1 Half, 2 BFloat16): expected 0, got 2"));
  EXPECT_THAT(registered([](auto& request) { request.worker = 1; }), Says("no such worker", "expected 0 to 0, got 1"));
  EXPECT_EQ(registered([](auto&) {}), "answered");
}

TEST(ServerService, AWorkerThatLeavesIsNotWaitedForInAMeeting) {
  Peer peer({.workers = 2});
  const wire::Sender chief = peer.join(0), other = peer.join(1);
  peer.start(chief);
  std::future<std::string> met = std::async(
      std::launch::async, [&] { return peer.ask(ServerCall::kMeet, encode(wire::AttendRequest{.from = chief})); });
  EXPECT_EQ(met.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_EQ(peer.ask(ServerCall::kLeave, encode(wire::AttendRequest{.from = other})), "answered");
  const bool ended = met.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(ended);
  if (!ended) peer.server().fail({core::ErrorCode::kInternal, "the meeting does not end"});
  EXPECT_EQ(met.get(), "answered");
}

TEST(ServerService, RefusesUpdatesThatMakeNoSense) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  peer.push_all(own, 0);
  const auto applied = [&](const std::function<void(wire::ApplyRequest&)>& change) {
    wire::ApplyRequest request{.from = own, .hyperparameters = {0.9, 0}};
    change(request);
    return peer.ask(ServerCall::kApply, encode(request));
  };
  EXPECT_THAT(applied([](auto& request) { request.optimizer = 1; }),
              Says("an optimizer that there is not", "expected below 1, got 1"));
  EXPECT_THAT(applied([](auto& request) { request.hyperparameters = {0.9}; }),
              Says("number of hyperparameters", "expected 2, got 1"));
  EXPECT_THAT(applied([](auto& request) { request.hyperparameters[0] = NAN; }), Says("not finite"));
  EXPECT_THAT(applied([](auto& request) { request.frozen = {1}; }),
              Says("freezes a parameter that there is not", "expected below 1, got 1"));
  EXPECT_EQ(applied([](auto&) {}), "answered");
}

// kStaged answers a push before its update: the next one may come then, and is looked at behind it.
TEST(ServerService, AStagedPushOfTheNextStepWaitsForTheUpdateOfThisOne) {
  Peer peer({.workers = 2, .mode = ServerMode::kStaged});
  const auto join = [&](uint64_t worker) {
    wire::RegisterRequest request = peer.registration(worker);
    request.mode = static_cast<uint64_t>(ServerMode::kStaged);
    const CallOutcome outcome = peer.call(ServerCall::kRegister, {.head = encode(request)});
    return wire::Sender{.worker = worker, .token = wire::decode<wire::RegisterReply>(outcome.message).token};
  };
  const wire::Sender chief = join(0), other = join(1);
  EXPECT_EQ(peer.start(chief), "answered");
  peer.push_all(chief, 0);
  EXPECT_EQ(peer.apply(chief, 0), "answered");
  std::future<std::string> next = peer.begin(
      ServerCall::kApply, encode(wire::ApplyRequest{.from = chief, .round = 1, .hyperparameters = {0.9, 0}}));
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(peer.server().status().updates, 0);
  peer.push_all(other, 0);
  EXPECT_EQ(peer.apply(other, 0), "answered");
  ASSERT_EQ(next.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_THAT(next.get(), Says("a push is not complete: worker 0: expected 2 chunks, got 0"));
  EXPECT_EQ(peer.server().status().updates, 1);
}

}  // namespace
}  // namespace trainyard::parallel::server_service_test
