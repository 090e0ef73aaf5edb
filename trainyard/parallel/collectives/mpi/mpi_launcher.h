// Reads the environment variables that MPI launchers set: Open MPI's mpirun and Slurm's srun --mpi=pmix.
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
// Returns the index of this process among those on this machine, and 0 when the launcher does not say.
int local_rank_by_mpi(const ReadVariable& read = read_environment);

// Returns how many processes, including this one, share this process's cores: those on the machine, or 1 when the
// launcher has bound each to cores of its own.
int processes_on_cores(const ReadVariable& read = read_environment);

// Returns the variables that Open MPI is to find in the environment, "NAME=value" each: plain point-to-point transports
// without busy polling, for shared cores. Variables that are already set are left out.
std::vector<std::string> mpi_settings(const ReadVariable& read = read_environment);

// Processes of one machine, before MPI has begun.
struct ProcessesOfMpirun {
  int rank = 0, size = 1;
  std::string folder;  // a folder for these processes alone, which mpirun removes at the end
};
// Returns nothing when there are several machines, or when the launcher does not say all of it.
std::optional<ProcessesOfMpirun> processes_of_mpirun(const ReadVariable& read = read_environment);

// Returns a collective that returns rank 0's text, through a file in the folder. It throws kTimeout when rank 0 does
// not write it within the deadline, kIo when it cannot.
std::function<std::string(const std::string& of_first)> share_by_folder(const ProcessesOfMpirun& processes,
                                                                        std::chrono::milliseconds deadline);

}  // namespace trainyard::parallel
