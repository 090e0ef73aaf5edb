#include "trainyard/parallel/launch/agent_listener.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace trainyard::parallel::agent_listener_test {
namespace {

using std::chrono::seconds;

int option(int descriptor, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(descriptor, level, name, &value, &size), 0);
  return value;
}

// A host that has lost its power sends no exit status: launch must ask, since it sends nothing to an agent for long.
TEST(AgentListener, AsksWhetherTheHostOfAnAgentIsThere) {
  AgentListener listener("127.0.0.1", 1);
  const std::string& address = listener.address();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  core::FrameConnection agent(core::connect_to("127.0.0.1", port, seconds(5)), kLongestMessage);
  const core::Frame hello =
      encode_message(HelloMessage{.token = listener.token(), .rank = 0, .ranks = 1, .host = "node"});
  agent.send(hello.kind, hello.body);
  ASSERT_TRUE(agent.flush());
  std::vector<ArrivedAgent> arrived;
  const auto until = std::chrono::steady_clock::now() + seconds(10);
  while (arrived.empty() && std::chrono::steady_clock::now() < until) {
    for (ArrivedAgent& each : listener.take_in([](const std::string& why) { ADD_FAILURE() << why; })) {
      arrived.push_back(std::move(each));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(arrived.size(), 1U);
  EXPECT_EQ(arrived[0].host, "node");
  const int descriptor = arrived[0].connection.descriptor();
  EXPECT_NE(option(descriptor, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_LE(option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE) +
                option(descriptor, IPPROTO_TCP, TCP_KEEPCNT) * option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL),
            60)
      << "before the ranks say that it does not answer, which takes two minutes";
}

}  // namespace
}  // namespace trainyard::parallel::agent_listener_test
