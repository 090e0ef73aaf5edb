// How many processes launchers say that they have started, by the variables that they set: mpirun of Open MPI, MPICH
// and its relatives (PMI), PMIx, Slurm's srun, torchrun. A group that has other numbers of processes than its launcher
// has started would be several trainings that look like one: each is "rank 0", and all end with code 0.
//
//   launcher_claims();          // {{"Open MPI", "OMPI_COMM_WORLD_SIZE=4", 4}}
//   require_whole_group(1);     // throws: 4 processes were started, and 1 has met
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::parallel {

struct LauncherClaim {
  std::string launcher;   // "Open MPI"
  std::string variables;  // that say so: "OMPI_COMM_WORLD_SIZE=4"
  int size = 1;           // processes
  bool at_least = false;  // `size` is what the rank implies: PMIx tells no size by a variable
};

// Set to 1, says that this process is on its own although a launcher has started several: each has data or flags of its
// own, as in a search for hyperparameters by srun.
inline constexpr const char* kSeparateProcessesVariable = "TRAINYARD_SEPARATE_PROCESSES";

// Returns what the launchers say that started this process, of more than one process. A size of 1 is left out: it is
// what a shell within an allocation has, or what an earlier launcher has left. So are Slurm's variables outside of a
// step of srun, in a shell of srun --pty, and where another launcher, which srun or sbatch has started, counts.
[[nodiscard]] std::vector<LauncherClaim> launcher_claims(const ReadVariable& read = read_environment);

// Returns the largest claim; nothing by kSeparateProcessesVariable, and once this process has met all others.
[[nodiscard]] std::optional<LauncherClaim> several_processes(const ReadVariable& read = read_environment);

// Throws kInvalidArgument where a launcher has started another number of processes than the `size` that have met.
void require_whole_group(int size, const ReadVariable& read = read_environment);

// Throws kInvalidArgument where a launcher has started several processes: each would do the same. `what` is what each
// would do, "train alone"; `remedy` says what else there is, and may be empty.
void refuse_copies(const std::string& what, const std::string& remedy = "",
                   const ReadVariable& read = read_environment);

}  // namespace trainyard::parallel
