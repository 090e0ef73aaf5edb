// Where the agents of a launch come in. Anybody can reach the port: who does not know the token is refused.
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
  // Listens at an address of this machine, at a port that is free. Throws kIo.
  AgentListener(const std::string& address, int ranks);

  const std::string& address() const { return address_; }  // "127.0.0.1:1234"
  const std::string& token() const { return token_; }
  // Returns what poll() must watch for reading.
  std::vector<int> descriptors() const;
  // Takes in who has come, without waiting. Calls `refused` for each one that is not an agent of a rank that is still
  // missing; there is no call after the fifth.
  std::vector<ArrivedAgent> take_in(const std::function<void(const std::string& why)>& refused);
  // Listens no more, and sends away who has not said who he is.
  void close();

 private:
  struct PendingConnection {
    core::FrameConnection connection;
    std::chrono::steady_clock::time_point until;
  };
  // Returns why a connection is refused; "": it is not.
  std::string objection(const LaunchMessage& message) const;

  core::Socket listening_;
  std::string address_, token_;
  std::vector<bool> arrived_;  // by rank
  std::vector<PendingConnection> pending_;
  int refusals_ = 0;
};

}  // namespace trainyard::parallel
