// What a server refuses of messages that are well formed: steps that are not the next one, elements that are not its
// own, senders that it does not know. It keeps serving the others.
#include "trainyard/parallel/servers/server_service.h"

#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::parallel::server_service_test {
namespace {

using parallel::encode;
using ::testing::HasSubstr;
using wire::encode;

constexpr uint64_t kElements = 600000;  // of floats: two chunks

// One worker, message by message.
class Peer {
 public:
  explicit Peer(const ClusterOptions& cluster, const char* optimizer = "tf_momentum")
      : server_({.cluster = cluster},
                {[=](nn::ParameterSet& set) { return optim::optimizers().get(optimizer)(set, {}); }}),
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
  wire::RegisterRequest registration(uint64_t worker) const {
    return {.worker = worker,
            .workers = static_cast<uint64_t>(server_options().workers),
            .servers = 1,
            .replicas = 1,
            .optimizers = 1,
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

TEST(ServerService, RefusesForgedAndStaleSteps) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  EXPECT_THAT(peer.push_all(own, 0), HasSubstr("the chief has not started the training"));
  EXPECT_EQ(peer.start(own), "answered");
  EXPECT_THAT(peer.push_all(own, 1),
              HasSubstr("a push of another step is refused: worker 0: expected step 0, got step 1"));
  EXPECT_THAT(peer.apply(own, 0), HasSubstr("a push is not complete"));
  EXPECT_EQ(peer.push_all(own, 0), "answered");
  EXPECT_THAT(peer.push(own, 0, 0, wire::kChunkBytes / sizeof(float)), HasSubstr("elements are pushed twice"));
  EXPECT_THAT(peer.apply(own, 1), HasSubstr("expected step 0, got step 1"));
  EXPECT_THAT(peer.apply(own, UINT64_MAX), HasSubstr("a push of another step is refused"));
  EXPECT_EQ(peer.apply(own, 0), "answered");
  EXPECT_THAT(peer.apply(own, 0), HasSubstr("expected step 1, got step 0"));
  EXPECT_THAT(peer.push_all(own, 0), HasSubstr("expected step 1, got step 0"));
  EXPECT_EQ(peer.push_all(own, 1), "answered");
  EXPECT_EQ(peer.apply(own, 1), "answered");
  EXPECT_EQ(peer.server().status().updates, 2);
}

TEST(ServerService, RefusesElementsThatAreNotItsOwn) {
  Peer peer({});
  const wire::Sender own = peer.join(0);
  peer.start(own);
  constexpr uint64_t kChunk = wire::kChunkBytes / sizeof(float);
  for (const auto& [begin, elements] :
       {std::pair(uint64_t{1}, size_t{16}), std::pair(uint64_t{0}, size_t{16}), std::pair(kElements, size_t{16}),
        std::pair(kChunk, size_t{kElements - kChunk + 1}), std::pair(UINT64_MAX, size_t{1}),
        std::pair(UINT64_MAX / 4 + 1, size_t{1}), std::pair(uint64_t{0}, size_t{0})}) {
    EXPECT_THAT(peer.push(own, 0, begin, elements), HasSubstr("elements that it must not be about")) << begin;
  }
  const auto write = [&](uint64_t target, uint64_t begin, size_t bytes) {
    const std::string data(bytes, '\0');
    return peer.ask(ServerCall::kWrite,
                    encode(wire::WriteRequest{.from = own, .target = target, .begin = begin}, bytes), data);
  };
  EXPECT_EQ(write(wire::kFirstSlot, 16, 64), "answered");
  EXPECT_THAT(write(wire::kFirstSlot, kElements - 1, 8), HasSubstr("must not be about"));
  EXPECT_THAT(write(wire::kValues, 0, 7), HasSubstr("must not be about"));
  for (const uint64_t target : {wire::kStagedValues, wire::kFirstSlot + 1, UINT64_MAX}) {
    EXPECT_THAT(write(target, 16, 64), HasSubstr("no such slot")) << target;
    EXPECT_THAT(peer.read({.from = own, .target = target, .begin = 0, .count = 16}), HasSubstr("no such slot"))
        << target;
  }
  EXPECT_THAT(peer.read({.from = own, .count = UINT64_MAX}), HasSubstr("too long"));
  EXPECT_THAT(peer.read({.from = own, .begin = kElements - 3, .count = 4}), HasSubstr("must not be about"));
  EXPECT_THAT(peer.read({.from = own, .round = 9, .count = 4}), HasSubstr("values of another step"));
  EXPECT_EQ(peer.read({.from = own, .begin = kElements - 4, .count = 4}), "answered");
}

TEST(ServerService, RefusesSendersThatItDoesNotKnow) {
  Peer peer({.workers = 2});
  const wire::Sender chief = peer.join(0), other = peer.join(1);
  EXPECT_EQ(peer.start(chief), "answered");
  for (const wire::Sender& from :
       {wire::Sender{.worker = 0, .token = chief.token + 1}, wire::Sender{.worker = 1, .token = chief.token},
        wire::Sender{.worker = 2, .token = 0}, wire::Sender{.worker = UINT64_MAX, .token = chief.token}}) {
    EXPECT_THAT(peer.push_all(from, 0), HasSubstr("not from a worker of this training"));
    EXPECT_THAT(
        peer.ask(ServerCall::kFail,
                 encode(wire::FailRequest{.from = from, .error = encode(core::Error(core::ErrorCode::kIo, "x"))})),
        HasSubstr("not from a worker of this training"));
    EXPECT_THAT(peer.ask(ServerCall::kLeave, encode(wire::AttendRequest{.from = from})),
                HasSubstr("not from a worker"));
  }
  const std::string data(64, '\0');
  EXPECT_THAT(peer.ask(ServerCall::kWrite, encode(wire::WriteRequest{.from = other}, data.size()), data),
              HasSubstr("only the chief writes values"));
  EXPECT_THAT(peer.ask(ServerCall::kPush, "garbage"), HasSubstr("no data"));
  EXPECT_EQ(peer.push_all(other, 0), "answered");
}

TEST(ServerService, RefusesModelsThatItCannotHold) {
  Peer peer({});
  const auto registered = [&](const std::function<void(wire::RegisterRequest&)>& change) {
    wire::RegisterRequest request = peer.registration(0);
    change(request);
    return peer.ask(ServerCall::kRegister, encode(request));
  };
  EXPECT_THAT(registered([](auto& request) { request.tensors[0].shape = {int64_t{1} << 36}; }),
              HasSubstr("cannot hold"));
  EXPECT_THAT(registered([](auto& request) { request.tensors.clear(); }), HasSubstr("cannot hold"));
  EXPECT_THAT(registered([](auto& request) { request.tensors.push_back(request.tensors[0]); }),
              HasSubstr("declared twice"));
  EXPECT_THAT(registered([](auto& request) { request.optimizers = 2; }), HasSubstr("another number of optimizers"));
  EXPECT_THAT(registered([](auto& request) { request.version = wire::kVersion + 1; }),
              HasSubstr("version of the messages"));
  EXPECT_THAT(registered([](auto& request) { request.worker = 1; }), HasSubstr("no such worker"));
  EXPECT_EQ(registered([](auto&) {}), "answered");
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
  EXPECT_THAT(applied([](auto& request) { request.optimizer = 1; }), HasSubstr("an optimizer that there is not"));
  EXPECT_THAT(applied([](auto& request) { request.hyperparameters = {0.9}; }), HasSubstr("number of hyperparameters"));
  EXPECT_THAT(applied([](auto& request) { request.hyperparameters[0] = NAN; }), HasSubstr("not finite"));
  EXPECT_THAT(applied([](auto& request) { request.frozen = {1}; }), HasSubstr("freezes a parameter that there is not"));
  EXPECT_EQ(applied([](auto&) {}), "answered");
}

}  // namespace
}  // namespace trainyard::parallel::server_service_test
