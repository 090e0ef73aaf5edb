// What the launchers of MPI, Open MPI's mpirun and Slurm's srun --mpi=pmix, say to the processes that they start.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::parallel {

// Returns whether a launcher of MPI has started this process.
bool started_by_mpi(const ReadVariable& read = read_environment);
// Returns which of the processes on this machine this is; 0 where nobody says it.
int local_rank_by_mpi(const ReadVariable& read = read_environment);

// Returns how many processes, with this one, may use this one's cores: those of the machine, and one where the launcher
// has tied each to cores of its own.
int processes_on_cores(const ReadVariable& read = read_environment);

// Returns the variables that Open MPI is to find in the environment, "NAME=value" each: plain point-to-point transports
// without polling, that take turns on shared cores. What the environment has already is not in it.
std::vector<std::string> mpi_settings(const ReadVariable& read = read_environment);

// Processes of one machine, before MPI has begun.
struct ProcessesOfMpirun {
  int rank = 0, size = 1;
  std::string folder;  // theirs alone, which mpirun removes at the end
};
// Returns nothing where there are several machines, and where the launcher does not say all of it.
std::optional<ProcessesOfMpirun> processes_of_mpirun(const ReadVariable& read = read_environment);

// Returns a collective that gives rank 0's text, by a file in the folder. It throws kTimeout when rank 0 does not write
// it within the deadline, kIo where it cannot.
std::function<std::string(const std::string& of_first)> share_by_folder(const ProcessesOfMpirun& processes,
                                                                        std::chrono::milliseconds deadline);

}  // namespace trainyard::parallel
