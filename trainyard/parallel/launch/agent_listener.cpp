#include "trainyard/parallel/launch/agent_listener.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/parallel/launch/keep_alive.h"

namespace trainyard::parallel {
namespace {

constexpr auto kTimeForHello = std::chrono::seconds(10);  // that a connection has to say who it is
constexpr size_t kMostPendingAgents = 64;                 // connections at a time that have not
constexpr int kMostRefusals = 5;                          // that are spoken of

}  // namespace

AgentListener::AgentListener(const std::string& address, int ranks)
    : listening_(core::listen_at(address, 0)),
      address_(fmt::format("{}:{}", address, core::port_of(listening_))),
      token_(core::random_token()),
      arrived_(static_cast<size_t>(ranks)) {
  // An agent has one connection, and each rank may have a log; 256 are for what else the launcher opens.
  core::allow_open_files(256 + 4 * static_cast<size_t>(ranks));
}

std::vector<int> AgentListener::descriptors() const {
  std::vector<int> found;
  if (listening_.valid() && pending_.size() < kMostPendingAgents && !is_full_) {
    found.push_back(listening_.descriptor());
  }
  for (const PendingConnection& pending : pending_) found.push_back(pending.connection.descriptor());
  return found;
}

std::string AgentListener::objection(const LaunchMessage& message) const {
  const auto* hello = std::get_if<HelloMessage>(&message);
  if (hello == nullptr || hello->token != token_) return "it does not know this launch's token";
  if (hello->ranks != static_cast<int>(arrived_.size())) return "it is of another number of ranks";
  if (arrived_[static_cast<size_t>(hello->rank)]) return fmt::format("rank {} is here already", hello->rank);
  return "";
}

std::vector<ArrivedAgent> AgentListener::take_in(const std::function<void(const std::string& why)>& refused) {
  is_full_ = false;
  try {
    while (listening_.valid() && pending_.size() < kMostPendingAgents) {
      auto socket = core::accept_from(listening_);
      if (!socket) break;
      keep_alive(socket->descriptor());  // a host that has lost its power sends no exit status of its rank
      give_up_unacknowledged(socket->descriptor());
      pending_.push_back({core::FrameConnection(std::move(*socket), kLongestAgentHello),
                          std::chrono::steady_clock::now() + kTimeForHello});
    }
  } catch (const core::Error& error) {
    is_full_ = true;
    if (++refusals_ <= kMostRefusals) refused(error.what());
  }
  std::vector<ArrivedAgent> agents;
  std::vector<PendingConnection> left;
  for (PendingConnection& pending : pending_) {
    std::vector<core::Frame> frames;
    std::string why;
    try {
      const bool open = pending.connection.receive(frames);
      if (frames.empty() && open && std::chrono::steady_clock::now() < pending.until) {
        left.push_back(std::move(pending));
        continue;
      }
      if (frames.empty()) why = "it did not say who it is";
      if (!frames.empty()) {
        const LaunchMessage message = decode_message(frames[0]);
        why = objection(message);
        if (why.empty()) {
          const auto& hello = std::get<HelloMessage>(message);
          arrived_[static_cast<size_t>(hello.rank)] = true;
          pending.connection.allow(kLongestMessage);
          agents.push_back({hello.rank, hello.host, std::move(pending.connection)});
        }
      }
    } catch (const core::Error& error) {
      why = error.what();
    }
    if (!why.empty() && ++refusals_ <= kMostRefusals) refused(why);
  }
  pending_ = std::move(left);
  return agents;
}

void AgentListener::close() {
  listening_ = core::Socket();
  pending_.clear();
}

}  // namespace trainyard::parallel
