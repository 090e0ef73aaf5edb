// The agent: a process that `trainyard launch` starts by mpirun for each rank. It starts the rank, sends the rank's
// output and exit status to launch, and ends the rank when launch is gone. mpirun can do none of this: it splits lines,
// and returns 0 whatever its processes returned when it is told to let survivors live.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

// Variables that tell an agent where to connect to launch. The rank does not get them.
inline constexpr const char* kLaunchAddressVariable = "TRAINYARD_LAUNCH_ADDRESS";  // "127.0.0.1:1234"
inline constexpr const char* kLaunchTokenVariable = "TRAINYARD_LAUNCH_TOKEN";
// The network that several hosts share. The agent sets the second variable for the rank to its host's address in it:
// rank 0 listens there unless --listen_address is given.
inline constexpr const char* kLaunchNetworkVariable = "TRAINYARD_LAUNCH_NETWORK";
inline constexpr const char* kListenAddressVariable = "TRAINYARD_LISTEN_ADDRESS";

// Runs a rank whose number is in mpirun's variables: `command` is its program and its arguments. `stop` is requested by
// SIGTERM, SIGINT and SIGUSR1, which are forwarded to the rank, as is SIGUSR2. Returns when the rank has ended; its
// exit status is sent to launch. Throws kInvalidArgument outside of a launch, kTimeout when launch does not answer.
void run_launch_agent(const std::vector<std::string>& command, const core::StopToken& stop);

}  // namespace trainyard::parallel
