// Rank 0's server of a process group: it distributes texts, receives the heartbeats of all ranks, and decides which
// rank keeps the others waiting. It sends its decision to all ranks.
#pragma once

#include <memory>
#include <string>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/process_group/liveness.h"

namespace trainyard::parallel {

struct ProcessHubOptions {
  int size = 1;
  std::string token;  // the first message of each rank contains it; other connections are closed
  RankDeadlines deadlines{};
};

// Has a thread of its own. Connections without the token cannot disturb the ranks.
class ProcessHub {
 public:
  ProcessHub(core::Socket listening, ProcessHubOptions options);
  // Reads what rank 0, whose connection has ended, said last, and sends pending messages to connected ranks: for a
  // second at most.
  ~ProcessHub();

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace trainyard::parallel
