#include "trainyard/parallel/process_group/launcher_claims.h"

#include <algorithm>
#include <atomic>
#include <charconv>
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
constexpr int64_t kLargest = 0xffffffff;

// Nothing where the variable is not set, or is no whole number from 0.
std::optional<int64_t> number_in(const ReadVariable& read, const char* name) {
  const std::optional<std::string> text = read(name);
  int64_t value = 0;
  if (!text || text->empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > kLargest) {
    return std::nullopt;
  }
  return value;
}

class Claims {
 public:
  explicit Claims(const ReadVariable& read) : read_(read) {}

  // Returns whether the variable says a size, of one process, too.
  bool add(const char* launcher, const char* variable) {
    const auto size = number_in(read_, variable);
    if (!size) return false;
    take({.launcher = launcher, .variables = fmt::format("{}={}", variable, *size), .size = clamped(*size)});
    return true;
  }

  void add_torchrun() {
    const auto rank = number_in(read_, "RANK"), size = number_in(read_, "WORLD_SIZE");
    if (!rank || !size || *rank >= *size) return;  // WORLD_SIZE alone is of no launcher
    take({.launcher = "torchrun",
          .variables = fmt::format("RANK={} WORLD_SIZE={}", *rank, *size),
          .size = clamped(*size)});
  }

  void add_slurm() {
    auto step = number_in(read_, "SLURM_STEP_ID");
    if (!step) step = number_in(read_, "SLURM_STEPID");  // of old releases
    if (!step || *step >= kFirstSpecialStep || read_("SLURM_PTY_PORT")) return;
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
    const auto rank = number_in(read_, "PMIX_RANK");
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
