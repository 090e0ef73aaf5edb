#include "trainyard/parallel/launch/agent_listener.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"

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

// Agents that connect one after the other to a listener on the loopback address.
class Agents {
 public:
  explicit Agents(AgentListener& listener) : listener_(listener) {}

  // Sends the message of a new agent, and lets the listener take it in. Returns why it is refused; empty: it is taken
  // in, or refused in silence.
  std::string say(const LaunchMessage& message) {
    const std::string& address = listener_.address();
    const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    auto& agent = agents_.emplace_back(core::connect_to("127.0.0.1", port, seconds(5)), kLongestMessage);
    const core::Frame frame = encode_message(message);
    agent.send(frame.kind, frame.body);
    EXPECT_TRUE(agent.flush());
    std::string said;
    const size_t before = arrived.size();
    const auto until = std::chrono::steady_clock::now() + seconds(10);
    while (said.empty() && arrived.size() == before && !is_closed(agent) && std::chrono::steady_clock::now() < until) {
      for (ArrivedAgent& each : listener_.take_in([&said](const std::string& why) { said = why; })) {
        arrived.push_back(each.rank);
        connections_.push_back(std::move(each.connection));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return said;
  }

  std::vector<int> arrived;  // ranks

 private:
  static bool is_closed(core::FrameConnection& agent) {
    std::vector<core::Frame> frames;
    return !agent.receive(frames);
  }

  AgentListener& listener_;
  std::deque<core::FrameConnection> agents_;
  std::vector<core::FrameConnection> connections_;
};

TEST(AgentListener, RefusesWhoIsNoAgentOfAMissingRank) {
  AgentListener listener("127.0.0.1", 2);
  Agents agents(listener);
  const auto hello = [&](int rank, int ranks, const std::string& token) {
    return HelloMessage{.token = token, .rank = rank, .ranks = ranks, .host = "node"};
  };
  EXPECT_EQ(agents.say(hello(1, 2, "another")), "it does not know this launch's token");
  EXPECT_EQ(agents.say(StartMessage()), "it does not know this launch's token");
  EXPECT_EQ(agents.say(hello(1, 3, listener.token())), "it is of another number of ranks");
  EXPECT_EQ(agents.say(hello(1, 2, listener.token())), "");
  EXPECT_EQ(agents.say(hello(1, 2, listener.token())), "rank 1 is here already");
  EXPECT_EQ(agents.say(hello(1, 2, "another")), "it does not know this launch's token") << "the fifth";
  EXPECT_EQ(agents.say(hello(1, 2, "another")), "") << "the sixth is refused in silence";
  EXPECT_EQ(agents.arrived, std::vector<int>{1});
  EXPECT_EQ(agents.say(hello(0, 2, listener.token())), "");
  EXPECT_EQ(agents.arrived, (std::vector<int>{1, 0}));
  EXPECT_EQ(listener.descriptors().size(), 1U) << "the port alone";
  listener.close();
  EXPECT_TRUE(listener.descriptors().empty());
}

// Returns why the listener refuses a peer that does this; empty where it says nothing in ten seconds.
std::string refusal_of(AgentListener& listener, const std::function<void(std::optional<core::FrameConnection>&)>& act) {
  const std::string& address = listener.address();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  std::optional<core::FrameConnection> peer;
  peer.emplace(core::connect_to("127.0.0.1", port, seconds(5)), kLongestMessage);
  act(peer);
  std::string said;
  const auto until = std::chrono::steady_clock::now() + seconds(10);
  while (said.empty() && std::chrono::steady_clock::now() < until) {
    EXPECT_TRUE(listener.take_in([&said](const std::string& why) { said = why; }).empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return said;
}

TEST(AgentListener, SaysWhatIsWrongWithAPeer) {
  AgentListener listener("127.0.0.1", 2);
  EXPECT_EQ(refusal_of(listener, [](auto& peer) { peer.reset(); }), "it did not say who it is");
  EXPECT_THAT(refusal_of(listener,
                         [](auto& peer) {
                           peer->send(6, "");
                           EXPECT_TRUE(peer->flush());
                         }),
              core::Says("a message of no known kind: expected 1 to 5, got 6"));
}

// It is not asked again and again for what it cannot take: no descriptor is left for a connection.
TEST(AgentListener, ListensNoFurtherWhereNoMoreFilesMayBeOpen) {
  AgentListener listener("127.0.0.1", 2);
  ASSERT_EQ(listener.descriptors().size(), 1U);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string said = refusal_of(listener, [&before](auto&) {
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit lower{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  });
  const size_t polled = listener.descriptors().size();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(said.find("too many files are open"), std::string::npos) << said;
  EXPECT_EQ(polled, 0U);
  EXPECT_TRUE(listener.take_in([](const std::string&) {}).empty());  // the peer has gone meanwhile
  EXPECT_FALSE(listener.descriptors().empty()) << "it listens again";
}

}  // namespace
}  // namespace trainyard::parallel::agent_listener_test
