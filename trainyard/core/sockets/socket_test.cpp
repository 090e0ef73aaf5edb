#include "trainyard/core/sockets/socket.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/sockets/random_token.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::core::socket_test {
namespace {

using std::chrono::milliseconds;

struct Pair {
  Socket listening = listen_at("127.0.0.1", 0);
  Socket client = connect_to("127.0.0.1", port_of(listening), milliseconds(5000));
  std::optional<Socket> server = accept_from(listening);
};

std::vector<Frame> received(FrameConnection& connection, size_t count) {
  std::vector<Frame> frames;
  while (frames.size() < count && connection.receive(frames)) std::this_thread::yield();
  return frames;
}

TEST(Socket, FramesTravelBothWays) {
  Pair pair;
  ASSERT_TRUE(pair.server);
  FrameConnection client(std::move(pair.client), 1 << 20), server(std::move(*pair.server), 1 << 20);
  client.send(1, "hello");
  client.send(2, "world");
  ASSERT_TRUE(client.flush());
  EXPECT_FALSE(client.has_unsent());
  const std::vector<Frame> said = received(server, 2);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[1].body, "world");
  server.send(9, "back");
  ASSERT_TRUE(server.flush());
  EXPECT_EQ(received(client, 1).at(0).kind, 9);
}

// More than the system's buffers hold: the sender keeps the rest and does not wait.
TEST(Socket, WhatCannotBeSentYetIsKept) {
  Pair pair;
  constexpr size_t kBytes = size_t{64} << 20;
  FrameConnection client(std::move(pair.client), 16), server(std::move(*pair.server), kBytes);
  client.send(1, std::string(kBytes, 'x'));
  ASSERT_TRUE(client.flush());
  EXPECT_TRUE(client.has_unsent());
  std::vector<Frame> frames;
  while (frames.empty()) {
    ASSERT_TRUE(server.receive(frames));
    ASSERT_TRUE(client.flush());
  }
  EXPECT_EQ(frames[0].body.size(), kBytes);
  EXPECT_FALSE(client.has_unsent());
}

size_t bytes_in_use() {
  return ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
}

// Sends a message, and reads until one has come.
void send_and_read(FrameConnection& from, FrameConnection& to, const std::string& body) {
  from.send(1, body);
  std::vector<Frame> frames;
  while (frames.empty()) {
    ASSERT_TRUE(from.flush());
    ASSERT_TRUE(to.receive(frames));
  }
}

// A training of weeks sends heart beats on one connection.
TEST(Socket, WhatHasBeenSentIsNotKept) {
  Pair pair;
  constexpr size_t kBytes = size_t{1} << 20, kTimes = 64;
  FrameConnection client(std::move(pair.client), 16), server(std::move(*pair.server), kBytes);
  const std::string body(kBytes, 'x');
  const size_t before = bytes_in_use();
  for (size_t i = 0; i < kTimes; ++i) {
    ASSERT_NO_FATAL_FAILURE(send_and_read(client, server, body));
  }
  EXPECT_FALSE(client.has_unsent());
  EXPECT_LT(bytes_in_use(), before + kTimes * kBytes / 2);
}

// The other side is always behind, as a terminal is behind a program that prints much.
TEST(Socket, WhatHasBeenSentIsNotKeptWhileTheRestWaits) {
  Pair pair;
  constexpr size_t kBytes = size_t{1} << 20, kBehind = 24, kTimes = 96;
  FrameConnection client(std::move(pair.client), 16), server(std::move(*pair.server), kBytes);
  const std::string body(kBytes, 'x');
  for (size_t i = 0; i < kBehind; ++i) client.send(1, body);
  const size_t before = bytes_in_use();
  for (size_t i = 0; i < kTimes; ++i) {
    ASSERT_NO_FATAL_FAILURE(send_and_read(client, server, body));
    ASSERT_TRUE(client.has_unsent());
  }
  EXPECT_LT(bytes_in_use(), before + kTimes * kBytes / 2);
}

TEST(Socket, TheEndOfTheOtherSideIsSeenBehindWhatItSaid) {
  Pair pair;
  FrameConnection server(std::move(*pair.server), 16);
  {
    FrameConnection client(std::move(pair.client), 16);
    client.send(1, "last words");
    ASSERT_TRUE(client.flush());
  }
  std::vector<Frame> frames;
  while (server.receive(frames)) std::this_thread::yield();
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].body, "last words");
}

TEST(Socket, NobodyThereIsATimeoutThatNamesTheAddress) {
  const uint16_t port = port_of(listen_at("127.0.0.1", 0));
  const Error error = thrown_by([&] { connect_to("127.0.0.1", port, milliseconds(100)); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(error, "127.0.0.1:" + std::to_string(port))) << error.what();
}

TEST(Socket, OneTryDoesNotWaitForAPortThatRefuses) {
  const Socket listening = listen_at("127.0.0.1", 0);
  EXPECT_TRUE(connect_once("127.0.0.1", port_of(listening), milliseconds(5000)));
  const uint16_t free = port_of(listen_at("127.0.0.1", 0));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(connect_once("127.0.0.1", free, std::chrono::hours(1)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Socket, TheLimitOfOpenFilesIsRaisedAsFarAsItMayBe) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto limit_after = [](size_t count) {
    allow_open_files(count);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  };
  const rlimit low{.rlim_cur = 200, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(limit_after(250), 250U);
  EXPECT_EQ(limit_after(100), 250U) << "it is not lowered";
  EXPECT_EQ(limit_after(std::numeric_limits<size_t>::max()), before.rlim_max);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Socket, APortInUseIsAnError) {
  const Socket first = listen_at("127.0.0.1", 0);
  const Error error = thrown_by([&] { listen_at("127.0.0.1", port_of(first)); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(says(error, std::strerror(EADDRINUSE))) << error.what();
}

TEST(Socket, LoopbackIsKnown) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.8.9.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.168.1.1"));
  EXPECT_EQ(thrown_by([] { is_loopback("no such name.invalid"); }).code(), ErrorCode::kIo);
}

TEST(Socket, TooManyOpenFilesAreAnErrorThatNamesTheLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const Socket listening = listen_at("127.0.0.1", 0);
  const uint16_t port = port_of(listening);
  const Socket client = connect_to("127.0.0.1", port, milliseconds(5000));
  const int lowest_free = ::dup(listening.descriptor());
  ASSERT_GT(lowest_free, 0);
  ::close(lowest_free);
  const rlimit low{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const std::optional<Error> accepting = error_of([&] { static_cast<void>(accept_from(listening)); }),
                             connecting = error_of(
                                 [&] { static_cast<void>(connect_once("127.0.0.1", port, milliseconds(5000))); }),
                             opening = error_of([] { static_cast<void>(listen_at("127.0.0.1", 0)); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const std::optional<Error>& error : {accepting, connecting, opening}) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kNoSpace);
    EXPECT_EQ(std::string(error->what()), "no connection can be opened: too many files are open: got " +
                                              std::to_string(lowest_free) +
                                              " files, as many as this process may open; raise the limit: ulimit -n");
  }
  EXPECT_TRUE(accept_from(listening)) << "the connection was kept";
}

// Short messages do not wait for longer ones, children that are started do not get the sockets, and no call waits.
TEST(Socket, EachHasTheOptionsOfOurConnections) {
  const Pair pair;
  ASSERT_TRUE(pair.server);
  const Socket once = *connect_once("127.0.0.1", port_of(pair.listening), milliseconds(5000));
  for (const Socket* const socket : {&pair.client, &*pair.server, &once}) {
    int on = 0;
    socklen_t size = sizeof(on);
    ASSERT_EQ(::getsockopt(socket->descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    EXPECT_NE(on, 0);
  }
  for (const Socket* const socket : {&pair.listening, &pair.client, &*pair.server}) {
    EXPECT_NE(::fcntl(socket->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(socket->descriptor(), F_GETFL) & O_NONBLOCK, 0);
  }
  int on = 0;
  socklen_t size = sizeof(on);
  ASSERT_EQ(::getsockopt(pair.listening.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, &size), 0);
  EXPECT_NE(on, 0) << "a server that starts again gets its port";
  ASSERT_TRUE(accept_from(pair.listening));
  EXPECT_FALSE(accept_from(pair.listening)) << "there is no other, and it does not wait for one";
}

TEST(Socket, ClosesItsDescriptorOnce) {
  const auto is_open = [](int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; };
  Socket first = listen_at("127.0.0.1", 0), second = listen_at("127.0.0.1", 0);
  const int one = first.descriptor(), two = second.descriptor();
  first = std::move(second);
  EXPECT_FALSE(is_open(one));
  EXPECT_TRUE(is_open(two));
  EXPECT_EQ(first.descriptor(), two);
  EXPECT_FALSE(second.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.release(), two);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(first.descriptor(), Socket().descriptor());
  EXPECT_TRUE(is_open(two));
  { const Socket last(two); }
  EXPECT_FALSE(is_open(two));
  EXPECT_FALSE(Socket().valid());
}

// A port whose queue is full drops what comes, so that neither an answer nor a refusal arrives.
TEST(Socket, OneTryWaitsForAPortThatDoesNotAnswer) {
  const Socket listening = listen_at("127.0.0.1", 0);
  ASSERT_EQ(::listen(listening.descriptor(), 0), 0);
  const uint16_t port = port_of(listening);
  std::vector<Socket> queued;
  bool full = false;
  for (int i = 0; i < 8 && !full; ++i) {
    std::optional<Socket> next = connect_once("127.0.0.1", port, milliseconds(300));
    full = !next;
    if (next) queued.push_back(std::move(*next));
  }
  ASSERT_TRUE(full);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(connect_once("127.0.0.1", port, milliseconds(60)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
}

TEST(Socket, SaysWhichAddressIsWrong) {
  const Socket first = listen_at("127.0.0.1", 0);
  const uint16_t port = port_of(first);
  EXPECT_EQ(message_of([&] { listen_at("127.0.0.1", port); }, ErrorCode::kIo),
            "cannot listen: 127.0.0.1:" + std::to_string(port) + ": got " + std::strerror(EADDRINUSE));
  const std::string unknown =
      message_of([] { static_cast<void>(is_loopback("no such name.invalid")); }, ErrorCode::kIo);
  EXPECT_TRUE(unknown.starts_with("an address cannot be resolved: no such name.invalid: got ")) << unknown;
  EXPECT_TRUE(unknown.ends_with("; look whether the name is right, and known on this machine")) << unknown;
  const uint16_t free = port_of(listen_at("127.0.0.1", 0));
  EXPECT_EQ(message_of([&] { connect_to("127.0.0.1", free, milliseconds(1)); }, ErrorCode::kTimeout),
            "no answer: 127.0.0.1:" + std::to_string(free));
}

TEST(Socket, SendingToOneThatHasClosedFails) {
  Pair pair;
  FrameConnection client(std::move(pair.client), 16);
  pair.server.reset();
  bool open = true;
  for (int i = 0; i < 5000 && open; ++i) {
    client.send(1, "lost");
    open = client.flush();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(open);
}

TEST(Socket, OneCallReadsWhatHasArrived) {
  constexpr int kBytes = 16'384;
  Pair pair;
  ASSERT_TRUE(pair.server);
  const int descriptor = pair.server->descriptor();
  FrameConnection client(std::move(pair.client), kBytes), server(std::move(*pair.server), kBytes);
  client.send(1, std::string(kBytes, 'x'));
  ASSERT_TRUE(client.flush());
  ASSERT_FALSE(client.has_unsent());
  for (int arrived = 0; arrived <= kBytes; std::this_thread::yield()) {  // with what is in front of the body
    ASSERT_EQ(::ioctl(descriptor, FIONREAD, &arrived), 0);
  }
  std::this_thread::sleep_for(milliseconds(10));
  std::vector<Frame> frames;
  EXPECT_TRUE(server.receive(frames));
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].body, std::string(kBytes, 'x'));
}

TEST(RandomToken, Has32HexadecimalDigitsThatNoOtherHas) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    const std::string token = random_token();
    EXPECT_EQ(token.size(), 32U);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
    for (size_t part = 8; part < token.size(); part += 8) {
      EXPECT_NE(token.substr(part, 8), token.substr(part - 8, 8)) << token;
    }
    tokens.insert(token);
  }
  EXPECT_EQ(tokens.size(), 100U);
}

}  // namespace
}  // namespace trainyard::core::socket_test
