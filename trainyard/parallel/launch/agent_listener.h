// Accepts the connections of a launch's agents. The port is open to others: connections without the token are refused.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/launch/launch_messages.h"

namespace trainyard::parallel {

struct ArrivedAgent {
  int rank = 0;
  std::string host;
  core::FrameConnection connection;
};

class AgentListener {
 public:
  // Listens at an address of this machine, on a free port. Throws kIo.
  AgentListener(const std::string& address, int ranks);

  const std::string& address() const { return address_; }  // "127.0.0.1:1234"
  const std::string& token() const { return token_; }
  // Returns what poll() must watch for reading.
  std::vector<int> descriptors() const;
  // Returns the agents that have arrived, without waiting. Calls `refused` for each connection that is not from an
  // agent of a missing rank, but not after the fifth.
  std::vector<ArrivedAgent> take_in(const std::function<void(const std::string& why)>& refused);
  // Stops listening, and closes the connections that have not sent the token.
  void close();

 private:
  struct PendingConnection {
    core::FrameConnection connection;
    std::chrono::steady_clock::time_point until;
  };
  // Returns why a connection is refused, or "" when it is accepted.
  std::string objection(const LaunchMessage& message) const;

  core::Socket listening_;
  std::string address_, token_;
  std::vector<bool> arrived_;  // by rank
  std::vector<PendingConnection> pending_;
  int refusals_ = 0;
  bool is_full_ = false;  // no more files may be open
};

}  // namespace trainyard::parallel
