#include "trainyard/parallel/launch/keep_alive.h"

#include <chrono>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "trainyard/core/sockets/socket.h"

namespace trainyard::parallel::keep_alive_test {
namespace {

int option(const core::Socket& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(socket.descriptor(), level, name, &value, &size), 0);
  return value;
}

class KeepAlive : public testing::Test {
 protected:
  const core::Socket listening_ = core::listen_at("127.0.0.1", 0);
  const core::Socket socket_ = core::connect_to("127.0.0.1", core::port_of(listening_), std::chrono::seconds(10));
};

TEST_F(KeepAlive, ASilentMachineIsAskedForAMinute) {
  keep_alive(socket_.descriptor());
  EXPECT_EQ(option(socket_, SOL_SOCKET, SO_KEEPALIVE), 1);
  const int idle = option(socket_, IPPROTO_TCP, TCP_KEEPIDLE), interval = option(socket_, IPPROTO_TCP, TCP_KEEPINTVL);
  EXPECT_EQ(idle + interval * option(socket_, IPPROTO_TCP, TCP_KEEPCNT), 60);
  EXPECT_LE(idle, 30) << "peer_is_silent() counts on it";
  EXPECT_EQ(option(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT), 0) << "a reader may make a pause";
}

TEST_F(KeepAlive, WhatIsNotAcknowledgedIsGivenUpAfterAMinute) {
  give_up_unacknowledged(socket_.descriptor());
  EXPECT_EQ(option(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
}

// What no program reads is acknowledged by its system. tests/cluster_simulation has machines that are silent.
TEST_F(KeepAlive, AMachineThatAcknowledgesIsNotSilent) {
  EXPECT_FALSE(peer_is_silent(socket_.descriptor()));
  ASSERT_EQ(::send(socket_.descriptor(), "abc", 3, 0), 3);
  EXPECT_FALSE(peer_is_silent(socket_.descriptor()));
  EXPECT_FALSE(peer_is_silent(-1)) << "closed";
}

}  // namespace
}  // namespace trainyard::parallel::keep_alive_test
