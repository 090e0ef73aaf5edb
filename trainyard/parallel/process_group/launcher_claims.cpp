#include "trainyard/parallel/process_group/launcher_claims.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

// Steps of Slurm that srun has not started: the script of sbatch, the shell of salloc, and what Slurm runs itself.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

// Returns whether srun has started this process as one of its step's. The shell of srun --pty is alone: the step's
// other processes have no terminal.
bool started_by_srun(const ReadVariable& read) {
  auto step = number_of_launcher(read, "SLURM_STEP_ID");
  if (!step) step = number_of_launcher(read, "SLURM_STEPID");  // of old releases
  return step && *step < kFirstSpecialStep && !read("SLURM_PTY_PORT");
}

class Claims {
 public:
  explicit Claims(const ReadVariable& read) : read_(read) {}

  // Returns whether the variable says a size, of one process, too.
  bool add(const char* launcher, const char* variable) {
    const auto size = number_of_launcher(read_, variable);
    if (!size) return false;
    take({.launcher = launcher, .variables = fmt::format("{}={}", variable, *size), .size = clamped(*size)});
    return true;
  }

  void add_torchrun() {
    const auto rank = number_of_launcher(read_, "RANK"), size = number_of_launcher(read_, "WORLD_SIZE");
    if (!rank || !size || *rank >= *size) return;  // WORLD_SIZE alone is of no launcher
    take({.launcher = "torchrun",
          .variables = fmt::format("RANK={} WORLD_SIZE={}", *rank, *size),
          .size = clamped(*size)});
  }

  void add_slurm() {
    if (!started_by_srun(read_)) return;
    for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (!add("Slurm's srun", name)) continue;
      // In a heterogeneous job the variables count the processes of this component, and the group may have those of all
      // components.
      if (!claims_.empty()) claims_.back().at_least = read_("SLURM_HET_SIZE").has_value();
      return;
    }
  }

  // Its variables hold the rank alone. Where nothing else tells the size, that says how many there are at least.
  void add_pmix() {
    const auto rank = number_of_launcher(read_, "PMIX_RANK");
    if (!rank || !claims_.empty()) return;
    take({.launcher = "PMIx",
          .variables = fmt::format("PMIX_RANK={}", *rank),
          .size = clamped(*rank + 1),
          .at_least = true});
  }

  bool empty() const { return claims_.empty(); }
  std::vector<LauncherClaim> take_all() { return std::move(claims_); }

 private:
  static int clamped(int64_t size) { return static_cast<int>(std::min<int64_t>(size, INT32_MAX)); }

  void take(LauncherClaim claim) {
    if (claim.size > 1) claims_.push_back(std::move(claim));
  }

  const ReadVariable& read_;
  std::vector<LauncherClaim> claims_;
};

// Set once this process has met all others. What it does alone after that is no mistake.
std::atomic<bool> has_met_all = false;

// Whether `read` reads the environment of this process, not one that a test makes up.
bool is_own_environment(const ReadVariable& read) {
  using Function = std::optional<std::string> (*)(const std::string&);
  const Function* const function = read.target<Function>();
  return function != nullptr && *function == &read_environment;
}

std::string started(const LauncherClaim& claim) {
  return fmt::format("{}{} processes were started", claim.at_least ? "at least " : "", claim.size);
}

// "unset OMPI_COMM_WORLD_SIZE"
std::string unset(const LauncherClaim& claim) {
  return fmt::format("unset {} where {} has not started this process",
                     claim.variables.substr(0, claim.variables.find('=')), claim.launcher);
}

}  // namespace

std::vector<LauncherClaim> launcher_claims(const ReadVariable& read) {
  Claims claims(read);
  const bool open_mpi = claims.add("Open MPI", "OMPI_COMM_WORLD_SIZE");
  const bool pmi = claims.add("MPICH or another PMI", "PMI_SIZE");
  const bool mvapich = claims.add("MVAPICH", "MV2_COMM_WORLD_SIZE");
  claims.add_torchrun();
  // mpirun within an allocation starts its daemons by srun, so that their processes have the variables of that step.
  if (!open_mpi && !pmi && !mvapich && claims.empty()) claims.add_slurm();
  if (!open_mpi) claims.add_pmix();
  return claims.take_all();
}

std::optional<LauncherClaim> several_processes(const ReadVariable& read) {
  if (read(kSeparateProcessesVariable) == "1" || (has_met_all && is_own_environment(read))) return std::nullopt;
  std::vector<LauncherClaim> claims = launcher_claims(read);
  const auto largest =
      std::max_element(claims.begin(), claims.end(),
                       [](const LauncherClaim& one, const LauncherClaim& other) { return one.size < other.size; });
  return largest == claims.end() ? std::nullopt : std::optional(std::move(*largest));
}

int64_t processes_on_machine(const ReadVariable& read) {
  for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
    if (const int64_t count = number_of_launcher(read, name).value_or(0); count > 0) return count;
  }
  if (!started_by_srun(read)) return 1;
  // srun says how many there are on all machines.
  const int64_t tasks = number_of_launcher(read, "SLURM_STEP_NUM_TASKS").value_or(0);
  const int64_t nodes = std::max<int64_t>(1, number_of_launcher(read, "SLURM_STEP_NUM_NODES").value_or(0));
  return std::max<int64_t>(1, tasks / nodes + (tasks % nodes == 0 ? 0 : 1));
}

void require_whole_group(int size, const ReadVariable& read) {
  for (const LauncherClaim& claim : launcher_claims(read)) {
    if (claim.at_least ? size >= claim.size : size == claim.size) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("{}, and {} of them {} met: each group would train alone", started(claim), size,
                                        size == 1 ? "has" : "have"),
                 .where = claim.launcher,
                 .expected = claim.variables,
                 .actual = fmt::format("a group of {}", size),
                 .remedy = fmt::format("use the launcher of the MPI that trainyard was built with (trainyard doctor), "
                                       "and hand its variables on; or {}",
                                       unset(claim))});
  }
  if (size > 1 && is_own_environment(read)) has_met_all = true;
}

void refuse_copies(const std::string& what, const std::string& remedy, const ReadVariable& read) {
  const std::optional<LauncherClaim> claim = several_processes(read);
  if (!claim) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("{}, and each would {}", started(*claim), what),
               .where = claim->launcher,
               .actual = claim->variables,
               .remedy = fmt::format("{}start one process; or set {}=1 where each has a job of its own",
                                     remedy.empty() ? "" : remedy + ", or ", kSeparateProcessesVariable)});
}

}  // namespace trainyard::parallel
