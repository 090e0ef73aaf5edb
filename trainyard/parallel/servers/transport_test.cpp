// gRPC and LibTorch in one process: what one server and one channel carry.
#include "trainyard/parallel/servers/transport.h"

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::transport_test {
namespace {

using ::testing::HasSubstr;

// What a call has come to.
class Result {
 public:
  std::function<void(CallOutcome)> done() {
    return [this](CallOutcome outcome) {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      ended_.notify_all();
    };
  }
  const CallOutcome& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(ended_.wait_for(lock, std::chrono::seconds(30), [this] { return outcome_.has_value(); }));
    return *outcome_;
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return outcome_.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<CallOutcome> outcome_;
};

struct Served {
  explicit Served(ServerHandler handler)
      : listener(listen_for_workers("127.0.0.1:0", {}, std::move(handler))),
        channel(connect_to_server("127.0.0.1:" + std::to_string(listener->port()), {})) {}
  std::unique_ptr<ServerListener> listener;
  std::unique_ptr<ServerChannel> channel;
};

TEST(ServerTransport, CarriesTheMemoryOfATensorBothWays) {
  const at::Tensor sent = at::mm(at::ones({1024, 512}), at::ones({512, 512}));  // 2 MiB, each element 512
  Served served(
      [&](ServerCall call, const IncomingMessage& message, const std::shared_ptr<ServerResponder>& responder) {
        EXPECT_EQ(call, ServerCall::kPush);
        const auto copy = std::make_shared<std::string>(message.prefix(message.size()));
        responder->reply({.head = "answer", .data = copy->data(), .bytes = copy->size(), .keep = copy});
      });
  Result result;
  served.channel->call(ServerCall::kPush,
                       {.head = "head", .data = sent.const_data_ptr(), .bytes = static_cast<size_t>(sent.nbytes())},
                       result.done());
  const CallOutcome& outcome = result.wait();
  ASSERT_EQ(outcome.kind, CallOutcome::Kind::kAnswered);
  ASSERT_EQ(outcome.message.size(), 10 + static_cast<size_t>(sent.nbytes()));
  EXPECT_EQ(outcome.message.prefix(10), "answerhead");
  std::vector<float> received(static_cast<size_t>(sent.numel()));
  outcome.message.copy(10, received.data(), static_cast<size_t>(sent.nbytes()));
  EXPECT_EQ(std::memcmp(received.data(), sent.const_data_ptr(), static_cast<size_t>(sent.nbytes())), 0);
  EXPECT_EQ(received[77], 512.0F);
}

TEST(ServerTransport, AnErrorKeepsItsPartsAndItsCode) {
  Served served([](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
    responder->refuse({core::ErrorCode::kNoSpace,
                       {.problem = "no room", .where = "here", .expected = "a", .actual = "b", .remedy = "c"}});
  });
  Result result;
  served.channel->call(ServerCall::kRead, {}, result.done());
  const CallOutcome& outcome = result.wait();
  ASSERT_EQ(outcome.kind, CallOutcome::Kind::kRefused);
  EXPECT_EQ(outcome.error->code(), core::ErrorCode::kNoSpace);
  EXPECT_STREQ(outcome.error->what(), "no room: here: expected a, got b; c");
}

// gRPC sends an error among headers, which may not be long.
TEST(ServerTransport, LongPartsOfAnErrorAreCut) {
  Served served([](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
    responder->refuse(
        {core::ErrorCode::kNoSpace, {.problem = std::string(1024, 'p'), .where = std::string(1025, 'w')}});
  });
  Result result;
  served.channel->call(ServerCall::kRead, {}, result.done());
  const CallOutcome& outcome = result.wait();
  ASSERT_EQ(outcome.kind, CallOutcome::Kind::kRefused);
  EXPECT_EQ(outcome.error->code(), core::ErrorCode::kNoSpace);
  EXPECT_EQ(outcome.error->detail().problem, std::string(1024, 'p'));
  EXPECT_EQ(outcome.error->detail().where, std::string(1021, 'w') + "...");
}

// A handler that fails behind its answer refuses the call, too.
TEST(ServerTransport, TheFirstAnswerOfACallCounts) {
  Served served([](ServerCall call, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
    const core::Error error(core::ErrorCode::kIo, "the disk is gone");
    if (call == ServerCall::kRead) responder->refuse(error);
    responder->reply({.head = "answer"});
    responder->refuse(error);
  });
  Result refused, answered;
  served.channel->call(ServerCall::kRead, {}, refused.done());
  ASSERT_EQ(refused.wait().kind, CallOutcome::Kind::kRefused);
  EXPECT_STREQ(refused.wait().error->what(), "the disk is gone");
  served.channel->call(ServerCall::kBeat, {}, answered.done());
  ASSERT_EQ(answered.wait().kind, CallOutcome::Kind::kAnswered);
  EXPECT_EQ(answered.wait().message.prefix(100), "answer");
}

// It is for the way out of the cluster.
TEST(ServerTransport, PassesByTheProxyOfTheEnvironment) {
  const core::EnvironmentVariable proxy("grpc_proxy", "http://127.0.0.1:1");  // where nothing listens
  const core::EnvironmentVariable none("no_proxy", std::nullopt), of_grpc("no_grpc_proxy", std::nullopt);
  Served served([](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
    responder->reply({});
  });
  Result result;
  served.channel->call(ServerCall::kBeat, {}, result.done());
  EXPECT_EQ(result.wait().kind, CallOutcome::Kind::kAnswered);
}

TEST(ServerTransport, IsThereWhereItIsBuilt) {
  EXPECT_TRUE(has_parameter_servers());
}

TEST(ServerTransport, CallsHaveTheNamesOfTheProtocol) {
  std::string names;
  for (int i = 0; i < kServerCalls; ++i) names += std::string(server_call_name(static_cast<ServerCall>(i))) + " ";
  EXPECT_EQ(names, "Register Attend Beat Start Write Push Apply Read Hold Meet Status Leave Fail ");
}

TEST(CallEnd, CallsItsFunctionOnce) {
  int calls = 0;
  const auto count = [&calls] { ++calls; };
  CallEnd later;
  later.on_end(count);
  EXPECT_EQ(calls, 0);
  later.end();
  later.end();
  EXPECT_EQ(calls, 1);
  CallEnd ended;
  ended.end();
  ended.on_end(count);
  EXPECT_EQ(calls, 2) << "at once";
}

TEST(IncomingMessage, IsReadAcrossItsPieces) {
  const std::string first = "ab", empty, last = "cde";
  const auto piece = [](const std::string& text) { return std::as_bytes(std::span<const char>(text)); };
  const IncomingMessage message({piece(first), piece(empty), piece(last)}, nullptr);
  EXPECT_EQ(message.size(), 5U);
  EXPECT_EQ(message.prefix(3), "abc");
  EXPECT_EQ(message.prefix(6), "abcde");
  const auto part = [&message](size_t offset, size_t bytes) {
    std::string copy(bytes, ' ');
    message.copy(offset, copy.data(), bytes);
    return copy;
  };
  EXPECT_EQ(part(1, 3), "bcd");
  EXPECT_EQ(part(2, 3), "cde");
  EXPECT_EQ(part(3, 1), "d");
  EXPECT_EQ(IncomingMessage().prefix(1), "");
}

TEST(ServerTransport, MessagesAboveFourMegabytesAreRefused) {
  bool handled = false;
  Served served([&](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
    handled = true;
    responder->reply({});
  });
  const std::vector<char> most(kLongestServerMessage + 1);
  Result result;
  served.channel->call(ServerCall::kWrite, {.data = most.data(), .bytes = most.size()}, result.done());
  EXPECT_NE(result.wait().kind, CallOutcome::Kind::kAnswered);
  EXPECT_FALSE(handled);
}

TEST(ServerTransport, AnAddressWithoutServerIsUnreachable) {
  const auto channel = connect_to_server("127.0.0.1:1", {});
  Result result;
  channel->call(ServerCall::kBeat, {}, result.done());
  EXPECT_EQ(result.wait().kind, CallOutcome::Kind::kUnreachable);
}

TEST(ServerTransport, APortThatIsTakenIsAnError) {
  const auto first = listen_for_workers("127.0.0.1:0", {}, {});
  const std::string address = "127.0.0.1:" + std::to_string(first->port());
  EXPECT_THAT(core::message_of([&] { listen_for_workers(address, {}, {}); }, core::ErrorCode::kIo),
              HasSubstr("cannot listen: " + address));
}

TEST(ServerTransport, ACallThatWaitsEndsOnBothSides) {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<ServerResponder> kept;
  int cancelled = 0;
  auto served = std::make_unique<Served>(
      [&](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
        responder->on_cancelled([&] {
          const std::lock_guard lock(mutex);
          ++cancelled;
          changed.notify_all();
        });
        const std::lock_guard lock(mutex);
        kept = responder;
        changed.notify_all();
      });
  Result result;
  served->channel->call(ServerCall::kAttend, {}, result.done());
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return kept != nullptr; }));
  EXPECT_EQ(cancelled, 0);
  EXPECT_FALSE(result.ended());
  lock.unlock();
  served->channel->cancel();
  EXPECT_EQ(result.wait().kind, CallOutcome::Kind::kCancelled);
  lock.lock();
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return cancelled == 1; }));
  kept.reset();  // and is refused
  lock.unlock();
  // A call behind cancel() ends, too.
  Result late;
  served->channel->call(ServerCall::kBeat, {}, late.done());
  EXPECT_EQ(late.wait().kind, CallOutcome::Kind::kCancelled);
}

TEST(ServerTransport, TheEndOfAServerEndsItsCalls) {
  std::mutex mutex;
  std::vector<std::shared_ptr<ServerResponder>> kept;
  auto served = std::make_unique<Served>(
      [&](ServerCall, const IncomingMessage&, const std::shared_ptr<ServerResponder>& responder) {
        const std::lock_guard lock(mutex);
        kept.push_back(responder);
      });
  Result result;
  served->channel->call(ServerCall::kAttend, {}, result.done());
  while (true) {
    const std::lock_guard lock(mutex);
    if (!kept.empty()) break;
  }
  std::thread releases([&] {
    EXPECT_EQ(result.wait().kind, CallOutcome::Kind::kUnreachable);
    const std::lock_guard lock(mutex);
    kept.clear();
  });
  served->listener.reset();
  releases.join();
}

}  // namespace
}  // namespace trainyard::parallel::transport_test
