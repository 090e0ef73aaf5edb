// Rank 0's server of a process group: it hands texts from rank to rank, hears what each rank does, and decides which
// one keeps the others waiting. What it says, all ranks hear.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/process_group/liveness.h"

namespace trainyard::parallel {

struct ProcessHubOptions {
  int size = 1;
  std::string token;  // that each rank says first; who does not is a stranger and is hung up on
  RankDeadlines deadlines{};
};

// Has a thread of its own. Nothing that a stranger sends disturbs the ranks.
class ProcessHub {
 public:
  ProcessHub(core::Socket listening, ProcessHubOptions options);
  // Sends what is unsent to ranks that still listen, for a second at most.
  ~ProcessHub();

  // Returns how many texts are kept for ranks that have not had them.
  int64_t kept_texts() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace trainyard::parallel
