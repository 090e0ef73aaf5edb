// The process beside each rank that `trainyard launch` starts by mpirun: it starts the rank, tells launch what the rank
// writes and how it ends, and ends it when launch is gone. mpirun could do none of that: it tears lines, and returns 0
// whatever its processes returned when it is told to let survivors live.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

// Variables by which launch tells an agent, and nobody else, where to report. The rank does not get them.
inline constexpr const char* kLaunchAddressVariable = "TRAINYARD_LAUNCH_ADDRESS";  // "127.0.0.1:1234"
inline constexpr const char* kLaunchTokenVariable = "TRAINYARD_LAUNCH_TOKEN";
// The network that several hosts share. The agent tells the rank the address of its host in it, by the second one:
// where rank 0 listens when --listen_address does not say.
inline constexpr const char* kLaunchNetworkVariable = "TRAINYARD_LAUNCH_NETWORK";
inline constexpr const char* kListenAddressVariable = "TRAINYARD_LISTEN_ADDRESS";

// Runs a rank whose number is in mpirun's variables: `command` is its program and its arguments. `stop` is asked by
// SIGTERM, SIGINT and SIGUSR1, which are passed on to the rank as SIGUSR2 is. Returns when the rank has ended; how
// it ended only launch learns. Throws kInvalidArgument outside of a launch, kTimeout where launch does not answer.
void run_launch_agent(const std::vector<std::string>& command, const core::StopToken& stop);

}  // namespace trainyard::parallel
