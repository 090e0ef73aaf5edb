// Reads the variables in which launchers say how many processes they have started: Open MPI's mpirun, MPICH and its
// derivatives (PMI), PMIx, Slurm's srun, torchrun. If a group had another number of processes than its launcher has
// started, several trainings would look like one: each is "rank 0", and all return 0.
//
//   launcher_claims();          // {{"Open MPI", "OMPI_COMM_WORLD_SIZE=4", 4}}
//   require_whole_group(1);     // throws: 4 processes were started, and 1 has met
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::parallel {

struct LauncherClaim {
  std::string launcher;   // "Open MPI"
  std::string variables;  // the variables that say it: "OMPI_COMM_WORLD_SIZE=4"
  int size = 1;           // processes
  bool at_least = false;  // `size` is derived from the rank: PMIx has no variable for the size
};

// Set it to 1 when a launcher has started several processes that train independently, each with data or flags of its
// own, as in a search for hyperparameters by srun.
inline constexpr const char* kSeparateProcessesVariable = "TRAINYARD_SEPARATE_PROCESSES";

// Returns the claims of this process's launchers, of more than one process. A size of 1 is left out: a shell within an
// allocation has it, or an earlier launcher has left it. Slurm's variables are left out outside of a step of srun, in a
// shell of srun --pty, and when srun or sbatch has started another launcher.
[[nodiscard]] std::vector<LauncherClaim> launcher_claims(const ReadVariable& read = read_environment);

// Returns the largest claim. Returns nothing when kSeparateProcessesVariable is set, and once this process has joined
// all others.
[[nodiscard]] std::optional<LauncherClaim> several_processes(const ReadVariable& read = read_environment);

// Returns how many processes a launcher has started on this machine, whether they train together or not; 1 where none
// says so. Of srun's it is the largest number that a machine of the step has when they are dealt evenly.
[[nodiscard]] int64_t processes_on_machine(const ReadVariable& read = read_environment);

// Throws kInvalidArgument when a launcher has started another number of processes than the `size` of the group.
void require_whole_group(int size, const ReadVariable& read = read_environment);

// Throws kInvalidArgument when a launcher has started several processes, because each would do the same. `what` is what
// each would do, "train alone"; `remedy` says what to do instead, and may be empty.
void refuse_copies(const std::string& what, const std::string& remedy = "",
                   const ReadVariable& read = read_environment);

}  // namespace trainyard::parallel
