#include "trainyard/parallel/collectives/tcp/tcp_transport.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <numeric>
#include <thread>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/process_engine.h"
#include "trainyard/parallel/testing/free_port.h"

namespace trainyard::parallel::tcp_transport_test {
namespace {

using core::Error, core::ErrorCode, ::testing::HasSubstr;
using Transports = std::vector<std::unique_ptr<MessageTransport>>;

constexpr auto kTimeout = std::chrono::seconds(30);

std::vector<TcpTransportOptions> options_of(int processes) {
  std::vector<TcpTransportOptions> all;
  std::vector<TcpAddress> addresses;
  for (int i = 0; i < processes; ++i) addresses.push_back({.host = "127.0.0.1", .port = free_port()});
  for (int i = 0; i < processes; ++i) {
    all.push_back({.process = i, .addresses = addresses, .token = "secret", .deadline = kTimeout});
  }
  return all;
}

Transports connected(const std::vector<TcpTransportOptions>& options) {
  std::vector<std::future<std::unique_ptr<MessageTransport>>> opening;
  for (const auto& each : options) {
    opening.push_back(std::async(std::launch::async, [&each] { return open_tcp_transport(each); }));
  }
  Transports transports;
  for (auto& each : opening) transports.push_back(each.get());
  return transports;
}

void wait(Transfer& transfer) {
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (!transfer.done()) {
    if (std::chrono::steady_clock::now() > end) throw std::logic_error("a message does not come");
  }
}

// Moves both ends, since a thread of each process does so.
void wait_both(Transfer& one, Transfer& other) {
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  bool first = false, second = false;
  while (!first || !second) {
    first = first || one.done();
    second = second || other.done();
    if (std::chrono::steady_clock::now() > end) throw std::logic_error("messages do not come");
  }
}

// Each of three processes sends to the next one more than the system's buffers hold, and asks for nothing but what
// comes from the one before: that leaves only because the connection to the next one moves, too.
TEST(TcpTransport, MovesMessagesThatNobodyAsksForInARing) {
  constexpr size_t kBytes = size_t{48} << 20;
  const Transports all = connected(options_of(3));
  std::vector<std::future<void>> processes;
  std::vector<std::vector<char>> received(3, std::vector<char>(kBytes));
  std::barrier all_have_sent(3);  // the buffers are full before one reads
  for (int process = 0; process < 3; ++process) {
    processes.push_back(std::async(std::launch::async, [&, process] {
      MessageTransport& own = *all[static_cast<size_t>(process)];
      const std::vector<char> sent(kBytes, static_cast<char>('a' + process));
      const auto out = own.send((process + 1) % 3, 1, sent.data(), kBytes);
      all_have_sent.arrive_and_wait();
      const auto in = own.receive((process + 2) % 3, 1, received[static_cast<size_t>(process)].data(), kBytes);
      wait(*in);
      wait(*out);
    }));
  }
  for (auto& each : processes) each.get();
  for (int process = 0; process < 3; ++process) {
    const std::vector<char>& bytes = received[static_cast<size_t>(process)];
    const char wanted = static_cast<char>('a' + (process + 2) % 3);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), wanted), static_cast<std::ptrdiff_t>(kBytes)) << process;
  }
}

TEST(TcpTransport, CarriesMessagesOfATagInTheirOrderAndTagsApart) {
  const Transports all = connected(options_of(3));
  const std::array<int, 3> sent{11, 22, 33};
  std::array<int, 3> received{};
  // The receives are posted in another order than the messages are sent in, some of them before and some behind.
  const auto third = all[2]->receive(0, 7, &received[2], sizeof(int));
  const auto first_out = all[0]->send(2, 5, &sent[0], sizeof(int));
  const auto second_out = all[0]->send(2, 5, &sent[1], sizeof(int));
  const auto third_out = all[0]->send(2, 7, &sent[2], sizeof(int));
  wait(*third);
  const auto first = all[2]->receive(0, 5, received.data(), sizeof(int));
  const auto second = all[2]->receive(0, 5, &received[1], sizeof(int));
  wait(*first);
  wait(*second);
  EXPECT_EQ(received, sent);
}

TEST(TcpTransport, CarriesMoreThanTheSystemTakesAtOnce) {
  const Transports all = connected(options_of(2));
  std::vector<int64_t> sent(4 << 20), received(sent.size());  // 32 MiB, which both send before one of them receives
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<int64_t> back(sent.size());
  const size_t bytes = sent.size() * sizeof(int64_t);
  const auto out = all[0]->send(1, 1, sent.data(), bytes), answer = all[1]->send(0, 1, sent.data(), bytes);
  const auto in = all[1]->receive(0, 1, received.data(), bytes), in_back = all[0]->receive(1, 1, back.data(), bytes);
  wait_both(*in, *in_back);
  wait_both(*out, *answer);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(back, sent);
}

TEST(TcpTransport, RefusesAMessageThatIsLongerThanExpected) {
  const Transports all = connected(options_of(2));
  const std::array<char, 16> sent{};
  std::array<char, 8> received{};
  const auto in = all[1]->receive(0, 1, received.data(), received.size());
  const auto out = all[0]->send(1, 1, sent.data(), sent.size());
  EXPECT_THAT(core::message_of([&] { wait(*in); }, ErrorCode::kCorruptData),
              core::Says("a message of 16 bytes comes where at most 8 are expected", "rank 0"));
}

// The first message has come before anything asked for it.
TEST(TcpTransport, RefusesAKeptMessageThatIsLongerThanExpected) {
  const Transports all = connected(options_of(2));
  const std::array<char, 16> sent{};
  std::array<char, 16> received{};
  const auto out = all[0]->send(1, 1, sent.data(), sent.size()), behind = all[0]->send(1, 2, sent.data(), 1);
  wait(*all[1]->receive(0, 2, received.data(), 1));
  EXPECT_THAT(core::message_of([&] { all[1]->receive(0, 1, received.data(), 8); }, ErrorCode::kCorruptData),
              core::Says("a message of 16 bytes comes where at most 8 are expected", "rank 0"));
}

TEST(TcpTransport, WhatIsTakenIsKeptNoLonger) {
  auto options = options_of(2);
  options[1].most_kept_bytes = 64;
  const Transports all = connected(options);
  for (const char value : {'a', 'b', 'c'}) {
    const std::vector<char> sent(64, value);
    std::vector<char> received(64);
    char other = 0;
    const auto out = all[0]->send(1, 1, sent.data(), sent.size()), behind = all[0]->send(1, 2, sent.data(), 1);
    wait(*all[1]->receive(0, 2, &other, 1));
    wait(*all[1]->receive(0, 1, received.data(), received.size()));
    EXPECT_EQ(received, sent);
    EXPECT_EQ(other, value);
  }
}

TEST(TcpTransport, KeepsNoMoreThanItsBoundOfWhatNothingAsksFor) {
  auto options = options_of(2);
  options[1].most_kept_bytes = 64;
  const Transports all = connected(options);
  const std::array<char, 65> sent{};
  char other = 0;
  const auto out = all[0]->send(1, 1, sent.data(), sent.size());
  const auto in = all[1]->receive(0, 2, &other, 1);
  EXPECT_THAT(core::message_of([&] { wait(*in); }, ErrorCode::kCorruptData), HasSubstr("more than 64 bytes"));
}

// A process that is ahead has sent more than the bound: what is asked for in time is not kept.
TEST(TcpTransport, LeavesTimeToAskForTheNextMessages) {
  constexpr size_t kMessages = 256, kBytes = 16 * 1024, kInts = kBytes / sizeof(int), kAskedAtOnce = 4;
  auto options = options_of(2);
  options[1].most_kept_bytes = 256 * 1024;
  const Transports all = connected(options);
  std::vector<int> sent(kMessages * kInts), received(sent.size());
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<std::unique_ptr<Transfer>> out;
  for (size_t i = 0; i < kMessages; ++i) out.push_back(all[0]->send(1, 1, &sent[i * kInts], kBytes));
  std::deque<std::unique_ptr<Transfer>> in;
  size_t asked = 0;
  const auto ask = [&] {
    if (asked < kMessages) in.push_back(all[1]->receive(0, 1, &received[asked * kInts], kBytes));
    ++asked;
  };
  while (asked < kAskedAtOnce) ask();
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (!in.empty()) {
    out.back()->done();  // moves what has not left
    if (in.front()->done()) {
      in.pop_front();
      ask();
    }
    ASSERT_LT(std::chrono::steady_clock::now(), end) << asked;
  }
  EXPECT_EQ(received, sent);
}

TEST(TcpTransport, SaysThatAConnectionIsClosed) {
  Transports all = connected(options_of(2));
  char received = 0;
  const auto in = all[1]->receive(0, 1, &received, 1);
  all[0].reset();
  EXPECT_THAT(core::message_of([&] { wait(*in); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has closed its connection"));
}

TEST(TcpTransport, SaysThatAMessageCannotBeSent) {
  const char sent = 'x';
  Transports all = connected(options_of(2));
  all[1].reset();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const auto send_until_refused = [&] {
    while (std::chrono::steady_clock::now() < end) {
      (void)all[0]->send(1, 1, &sent, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_THAT(core::message_of(send_until_refused, ErrorCode::kPeerFailed),
              core::Says("a message cannot be sent (", "the exchange with rank 1"));
}

TEST(TcpTransport, NamesTheProcessThatDoesNotCome) {
  auto options = options_of(3);
  for (auto& each : options) each.deadline = std::chrono::milliseconds(300);
  auto first = std::async(std::launch::async, [&] { return open_tcp_transport(options[0]); });
  EXPECT_THAT(core::message_of([&] { open_tcp_transport(options[1]); }, ErrorCode::kTimeout),
              HasSubstr("process 2 has not come"));
  EXPECT_THAT(core::message_of([&] { first.get(); }, ErrorCode::kTimeout), HasSubstr("process 2 has not come"));
}

// One that connects and says nothing, one that says something else, and one with another token.
TEST(TcpTransport, PassesOverStrangers) {
  auto options = options_of(2);
  auto stranger = options[0];
  stranger.token = "guess";
  stranger.deadline = std::chrono::milliseconds(500);
  auto second = std::async(std::launch::async, [&] { return open_tcp_transport(options[1]); });
  const core::Socket silent = core::connect_to("127.0.0.1", options[1].addresses[1].port, kTimeout);
  EXPECT_THAT(core::message_of([&] { open_tcp_transport(stranger); }, ErrorCode::kTimeout),
              HasSubstr("process 1 has not come"));
  const auto first = open_tcp_transport(options[0]);
  EXPECT_NE(second.get(), nullptr);
}

TEST(TcpTransport, SumsOfProcessesHaveTheBitsOfTheirOrder) {
  const auto options = options_of(3);
  std::vector<std::future<at::Tensor>> running;
  for (const auto& each : options) {
    running.push_back(std::async(std::launch::async, [each] {
      const auto engine = ProcessEngine::start([each] { return open_tcp_transport(each); }, kTimeout);
      at::Tensor values = at::full({300'000}, 0.1F * static_cast<float>(each.process + 1));
      {
        const auto communicators =
            make_process_communicators(engine, 1, kTimeout, choose_algorithm, HostExchange::kMessages);
        communicators[0]->all_reduce(values, core::ReduceOp::kSum);
      }
      engine->finish(kTimeout);
      return values;
    }));
  }
  const float expected = (0.1F * 1 + 0.1F * 2) + 0.1F * 3;
  for (auto& each : running) {
    const at::Tensor values = each.get();
    EXPECT_EQ(values.min().item<float>(), expected);
    EXPECT_EQ(values.max().item<float>(), expected);
  }
}

TEST(TcpTransport, OptionsThatFitNoProcessAreRefused) {
  EXPECT_THROW(open_tcp_transport({.process = 1, .addresses = {{.host = "127.0.0.1", .port = 1}}}), Error);
  EXPECT_THROW(open_tcp_transport({.addresses = {{.host = "127.0.0.1", .port = 1}}, .token = std::string(65, 'x')}),
               Error);
  const auto refusal = [](int process, size_t bytes) {
    const TcpTransportOptions options{.process = process,
                                      .addresses = {{.host = "127.0.0.1", .port = 1}, {.host = "127.0.0.1", .port = 2}},
                                      .token = std::string(bytes, 'x')};
    return core::message_of([&] { options.validate(); });
  };
  const std::string expected = "expected one of 2 processes, a token of at most 64 bytes, got ";
  EXPECT_EQ(refusal(0, 64), "no error");
  EXPECT_EQ(refusal(1, 0), "no error");
  EXPECT_THAT(refusal(2, 7), core::Says(expected + "process 2, 7 bytes"));
  EXPECT_THAT(refusal(-1, 7), core::Says(expected + "process -1, 7 bytes"));
  EXPECT_THAT(refusal(1, 65), core::Says(expected + "process 1, 65 bytes"));
}

// What has come of the first message is in memory of the transport when both receives are posted.
TEST(TcpTransport, AMessageThatIsAskedForWhileItComesIsTheFirstOnes) {
  const Transports all = connected(options_of(2));
  const std::vector<char> large(size_t{48} << 20, 'l');  // more than the system's buffers hold
  const std::array<char, 3> small{'s', 'm', 'l'};
  std::vector<char> first_received(large.size());
  std::array<char, 3> second_received{};
  char other = 0;
  const auto large_out = all[0]->send(1, 1, large.data(), large.size());
  const auto behind = all[1]->receive(0, 2, &other, 1);
  for (int turn = 0; turn < 20; ++turn) {
    EXPECT_FALSE(behind->done());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto first = all[1]->receive(0, 1, first_received.data(), first_received.size());
  const auto second = all[1]->receive(0, 1, second_received.data(), second_received.size());
  const auto small_out = all[0]->send(1, 1, small.data(), small.size());
  wait_both(*large_out, *first);
  wait_both(*small_out, *second);
  EXPECT_EQ(first_received, large);
  EXPECT_EQ(second_received, small);
}

}  // namespace
}  // namespace trainyard::parallel::tcp_transport_test
