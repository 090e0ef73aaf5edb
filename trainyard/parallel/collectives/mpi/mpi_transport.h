// Carries messages between processes with Open MPI, which is loaded at the first use. The processes are started by its
// mpirun, or by Slurm's srun --mpi=pmix.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trainyard/parallel/collectives/plan/message_transport.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

// Starts MPI on a thread of its own. Collective over the processes of the launcher; a process can do it once. Throws
// kInvalidArgument when no launcher has started this process, or when it has started another number of processes than
// have met (each would train alone); kUnsupported when MPI is not built in or not installed; kTimeout when the others
// do not come; and what `peers` reports meanwhile. After the last two, a thread keeps waiting for the others until the
// process ends.
std::shared_ptr<ProcessEngine> start_mpi(std::chrono::milliseconds deadline, PeerWatch peers = {});

// Returns "Open MPI v4.1.4" after start_mpi().
std::string mpi_version();

}  // namespace trainyard::parallel
