// Builds the command line of mpirun for the ranks of a launch, and the folders that Open MPI uses.
#pragma once

#include <string>
#include <vector>

#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/launch.h"

namespace trainyard::parallel {

struct MpirunFolders {
  std::string session;  // files that mpirun and its ranks on this machine share
  std::string memory;   // shared memory of the ranks, on /dev/shm; empty: Open MPI chooses
};

// Returns "env NAME=value ... mpirun ...". Settings of Open MPI in this process's environment (OMPI_MCA_...) take
// precedence. `network` is null when all ranks run on this machine; `hosts` replaces those of the options unless it is
// empty.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const RankCommand& command,
                                        const Network* network, const std::vector<HostSlots>& hosts,
                                        const MpirunFolders& folders);

// Returns the path of the library that is preloaded into mpirun so that its ports listen on one address, or "" when it
// is not installed.
std::string loopback_preload_path();

}  // namespace trainyard::parallel
