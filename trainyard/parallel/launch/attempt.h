// One start of all ranks by mpirun, until all have ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/launch.h"
#include "trainyard/parallel/launch/process.h"
#include "trainyard/parallel/launch/terminal.h"

namespace trainyard::parallel {

struct RankEnd {
  ProcessEnd end;
  std::string host;     // host name that its agent has sent; empty: it never connected
  std::string address;  // IPv4 address that its agent has connected from; empty: it never did, or from another address
  bool ended_by_launch =
      false;  // true when launch ended it because another rank had failed: its exit status then means nothing
};

struct AttemptResult {
  std::vector<RankEnd> ranks;
  std::optional<int> first_failed;  // the rank; any code but 0 and that of a stop is a failure
  bool stopped = false;             // a stop was requested
};

// Returns the worst code of the ranks that ended by themselves: the highest of a failure, else that of a stop, else 0.
int worst_exit_code(const AttemptResult& result);

// Returns a rank that ended by itself with a code that it would return again (kWrongUse, kWrongData, 126, 127).
std::optional<int> final_failure(const AttemptResult& result);

// Runs `command`; `number` is 1 for the first start. Throws as launch() does.
AttemptResult run_attempt(const LaunchOptions& options, const RankCommand& command, const Network* network,
                          const std::vector<HostSlots>& hosts, int number, Terminal& terminal,
                          const core::StopToken& stop);

}  // namespace trainyard::parallel
