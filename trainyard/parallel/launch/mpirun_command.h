// The command line of mpirun for the ranks of a launch, and the folders that Open MPI gets.
#pragma once

#include <string>
#include <vector>

#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/launch.h"

namespace trainyard::parallel {

struct MpirunFolders {
  std::string session;  // what mpirun and its ranks on this machine share by files
  std::string memory;   // on /dev/shm, what they share by memory; empty: Open MPI chooses
};

// Returns "env NAME=value ... mpirun ...". Settings of Open MPI that this process' environment has (OMPI_MCA_...)
// stand. `network` is null when all ranks run on this machine; `hosts` replaces those of the options unless it is
// empty.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const RankCommand& command,
                                        const Network* network, const std::vector<HostSlots>& hosts,
                                        const MpirunFolders& folders);

// Returns the path of what is preloaded into mpirun so that its ports listen on one address; "": it is not installed.
std::string loopback_preload_path();

}  // namespace trainyard::parallel
