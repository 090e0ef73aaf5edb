#include "trainyard/core/sockets/unix_socket.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/memory/shared_memory.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::core::unix_socket_test {
namespace {

std::string free_name() {
  return "trainyard-test-" + std::to_string(::getpid());
}

void await_readable(const Socket& socket) {
  pollfd readable{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&readable, 1, 20'000), 1);
}

TEST(UnixSocket, HandsOverMemoryBetweenProcesses) {
  SharedMemory memory = SharedMemory::create(1 << 20);
  const std::string name = free_name();
  const Socket listening = listen_at_name(name);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto connection = connect_to_name(name);
    if (!connection || !is_own_user(*connection)) ::_exit(1);
    await_readable(*connection);
    const auto descriptor = receive_descriptor(*connection);
    if (!descriptor) ::_exit(2);
    const SharedMemory mapped = SharedMemory::map(descriptor->descriptor());
    mapped.data()[12'345] = 7;
    ::_exit(mapped.bytes() == (1 << 20) ? 0 : 3);
  }
  await_readable(listening);
  const auto connection = accept_from(listening);
  ASSERT_TRUE(connection);
  EXPECT_TRUE(is_own_user(*connection));
  EXPECT_TRUE(send_descriptor(*connection, memory.descriptor()));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.data()[12'345], 7);
}

// Needs the rights to become another user.
TEST(UnixSocket, AnotherUserIsTold) {
  if (::geteuid() != 0) return;
  const std::string name = free_name();
  const Socket listening = listen_at_name(name);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(1);
    const auto connection = connect_to_name(name);
    ::_exit(connection && !is_own_user(*connection) ? 0 : 2);
  }
  await_readable(listening);
  const auto connection = accept_from(listening);
  ASSERT_TRUE(connection);
  EXPECT_FALSE(is_own_user(*connection));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(UnixSocket, ANameIsFreeAgainWhenItsSocketIsClosed) {
  EXPECT_FALSE(connect_to_name(free_name()));
  {
    const Socket listening = listen_at_name(free_name());
    EXPECT_TRUE(connect_to_name(free_name()));
    EXPECT_THAT(message_of([] { listen_at_name(free_name()); }, ErrorCode::kIo), core::Says(free_name()));
  }
  EXPECT_FALSE(connect_to_name(free_name()));
  EXPECT_THAT(message_of([] { listen_at_name(std::string(101, 'x')); }, ErrorCode::kIo),
              core::Says("more than 100 bytes"));
}

TEST(UnixSocket, AConnectionThatClosesHandsOverNothing) {
  const Socket listening = listen_at_name(free_name());
  const auto client = connect_to_name(free_name());
  ASSERT_TRUE(client);
  { const auto server = accept_from(listening); }
  await_readable(*client);
  EXPECT_FALSE(receive_descriptor(*client));
  EXPECT_FALSE(send_descriptor(*client, 0));
}

// What is in memory behind a name is no part of it.
TEST(UnixSocket, ANameIsItsBytesAlone) {
  std::string at = free_name() + std::string(100, 'x'), to = free_name() + std::string(100, 'y');
  at.resize(free_name().size());
  to.resize(free_name().size());
  const Socket listening = listen_at_name(at);
  EXPECT_TRUE(connect_to_name(to));
  EXPECT_FALSE(connect_to_name(to + "z"));
}

TEST(UnixSocket, ANameMayHave100Bytes) {
  std::string name = free_name();
  name.resize(100, 'n');
  const Socket listening = listen_at_name(name);
  EXPECT_TRUE(connect_to_name(name));
  EXPECT_FALSE(connect_to_name(name.substr(0, 99)));
  EXPECT_FALSE(connect_to_name(name + "y")) << "101 bytes, which are not cut off";
}

TEST(UnixSocket, AMessageWithoutADescriptorHandsOverNothing) {
  const Socket listening = listen_at_name(free_name());
  EXPECT_FALSE(accept_from(listening)) << "nothing is there, and it does not wait";
  const auto client = connect_to_name(free_name());
  ASSERT_TRUE(client);
  const auto server = accept_from(listening);
  ASSERT_TRUE(server);
  EXPECT_FALSE(receive_descriptor(*client)) << "nothing is sent yet";
  ASSERT_EQ(::send(server->descriptor(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_FALSE(receive_descriptor(*client));
  EXPECT_TRUE(send_descriptor(*server, listening.descriptor()));
  const auto received = receive_descriptor(*client);
  ASSERT_TRUE(received);
  EXPECT_NE(received->descriptor(), listening.descriptor());
  for (const Socket* const socket : {&listening, &*client, &*server, &*received}) {
    EXPECT_NE(::fcntl(socket->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(socket->descriptor(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(UnixSocket, SaysWhyItCannotListen) {
  const Socket listening = listen_at_name(free_name());
  EXPECT_EQ(message_of([] { listen_at_name(free_name()); }, ErrorCode::kIo),
            "cannot listen at a name: " + free_name() + ": got " + std::strerror(EADDRINUSE));
  EXPECT_EQ(message_of([] { listen_at_name(std::string(101, 'x')); }, ErrorCode::kIo),
            "cannot listen at a name: " + std::string(101, 'x') + ": got a name of more than 100 bytes");
}

}  // namespace
}  // namespace trainyard::core::unix_socket_test
