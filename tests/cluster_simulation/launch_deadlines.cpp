// When a simulated launch, and all that it has started, must have ended: LaunchJudge's deadlines, and what a fault can
// do.
#include <algorithm>
#include <array>
#include <csignal>

#include "tests/cluster_simulation/launch_judge.h"
#include <sys/wait.h>

#include "trainyard/parallel/launch/process.h"

namespace trainyard::cluster_simulation {
namespace {

constexpr Nanos kAtOnce = 3 * kSecond;  // where all that takes part lives: looks every 50 ms, mpirun's end
constexpr Nanos kAgentsTime = 2 * kSecond;
constexpr Nanos kKeepAlive = 60 * kSecond;   // parallel/launch/keep_alive.h
constexpr Nanos kSilence = 150 * kSecond;    // the same, where something was sent meanwhile
constexpr Nanos kPromisedEnd = 5 * kSecond;  // of all that a launch has started

}  // namespace

const char* launch_fault_name(LaunchFault fault) {
  constexpr std::array<const char*, static_cast<size_t>(LaunchFault::kCount)> kNames = {"no fault",
                                                                                        "a failure",
                                                                                        "a kill of a rank",
                                                                                        "a kill of an agent",
                                                                                        "a loss of power",
                                                                                        "a frozen agent",
                                                                                        "a pause of an agent",
                                                                                        "a frozen launch",
                                                                                        "a pause of launch",
                                                                                        "a cut",
                                                                                        "a brief cut",
                                                                                        "a reset",
                                                                                        "a kill of launch",
                                                                                        "a kill of the keeper",
                                                                                        "a kill of mpirun",
                                                                                        "a stop",
                                                                                        "two stops",
                                                                                        "a user's signal",
                                                                                        "a slow start",
                                                                                        "no program",
                                                                                        "a slow reader",
                                                                                        "no reader"};
  return kNames.at(static_cast<size_t>(fault));
}

// Returns whether launch has ended by itself, so that what it says counts.
bool LaunchJudge::ended_by_itself() const {
  return job_.launch->ended && !WIFSIGNALED(job_.launch->wait_status) && facts_.fault != LaunchFault::kSecondStop;
}

// Returns whether the fault can keep this rank's agent from reporting.
bool LaunchJudge::is_lost(const RankRun& run) const {
  if (!facts_.happened || has_restarted()) return false;
  if (run.agent != nullptr && run.agent->ended && run.agent->ended_at < facts_.fault_at) return false;
  switch (facts_.fault) {
    case LaunchFault::kKillAgent:
    case LaunchFault::kFreezeAgent:
      return &run == &job_.runs[static_cast<size_t>(facts_.victim)];
    case LaunchFault::kMachine:
    case LaunchFault::kCut:
      return facts_.victim_machine == 0 ? run.machine != 0 : run.machine == facts_.victim_machine;
    case LaunchFault::kReset:  // mpirun, which loses its daemon, ends the agents of all machines
      return run.machine == facts_.victim_machine || run.agent == nullptr || !run.agent->signals.empty();
    case LaunchFault::kKillKeeper:
    case LaunchFault::kKillMpirun:
      return true;
    default:
      return false;
  }
}

// Returns whether launch loses the connection of a rank by the fault, and has had all of them.
bool LaunchJudge::is_noticed() const {
  for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
    if (is_lost(job_.runs[rank]) && facts_.had_begun[rank]) return true;
  }
  return false;
}

// Returns whether a machine hears nothing of the others any more.
bool LaunchJudge::is_silent() const {
  return facts_.happened && (facts_.fault == LaunchFault::kMachine || facts_.fault == LaunchFault::kCut);
}

bool LaunchJudge::can_report(const RankRun& run) const {
  return !is_lost(run) &&
         (run.agent == nullptr || !run.agent->was_killed || run.process->ended_at < run.agent->ended_at);
}

bool LaunchJudge::is_failure(const RankRun& run) const {
  if (run.process == nullptr || !run.process->ended || run.process->killed_by.starts_with("agent")) return false;
  const parallel::ProcessEnd end = parallel::process_end(run.process->wait_status);
  return is_failing(end.code());
}

Nanos LaunchJudge::last_end_of_ranks() const {
  Nanos last = 0;
  for (const RankRun& run : job_.runs) {
    if (run.process == nullptr || !run.process->ended) return kNever;
    last = std::max(last, run.process->ended_at);
  }
  return last;
}

// Returns whether the fault ends agents before they can end anything.
bool LaunchJudge::kills_agents() const {
  switch (facts_.fault) {
    case LaunchFault::kKillAgent:
    case LaunchFault::kFreezeAgent:
    case LaunchFault::kKillKeeper:
    case LaunchFault::kKillMpirun:
    case LaunchFault::kReset:
    case LaunchFault::kCut:
    case LaunchFault::kMachine:
      return true;
    default:
      return false;
  }
}

Nanos LaunchJudge::latest_end() const {
  const Nanos failure = nanos(job_.options.failure_timeout), stop = nanos(job_.options.stop_timeout);
  const bool lost = is_silent() && is_noticed();
  const bool frozen = facts_.happened && facts_.fault == LaunchFault::kFreezeAgent;
  // Launch waits five seconds for agents to end their ranks, also where they cannot be heard any more.
  const bool unheard =
      facts_.happened && (facts_.fault == LaunchFault::kReset || facts_.fault == LaunchFault::kKillKeeper ||
                          facts_.fault == LaunchFault::kKillMpirun);
  const Nanos by_force = is_silent() || frozen ? kByForce : unheard ? 5 * kSecond : 0;
  const Nanos pause = std::max<Nanos>(facts_.fault_ends - facts_.fault_at, 0);
  Nanos latest = kNever;
  const auto within = [&](Nanos from, Nanos time) {
    latest = std::min(latest, from + time + by_force + pause + kAtOnce);
  };
  if (facts_.stop_at != kNever) within(facts_.stop_at, stop);
  const bool has_begun =
      std::any_of(job_.runs.begin(), job_.runs.end(), [](const RankRun& each) { return each.process; });
  if (!has_begun) within(std::max(facts_.begin, job_.started_at), nanos(job_.options.start_timeout) + kByForce);
  for (const RankRun& run : job_.runs) {
    if (is_failure(run) && can_report(run)) within(run.process->ended_at, failure);
  }
  const Nanos last = last_end_of_ranks();
  if (last != kNever && !frozen && !lost) within(last, facts_.happened ? kSecond : 0);
  if (!facts_.happened) return latest;
  if (facts_.fault == LaunchFault::kFreezeLaunch) return facts_.fault_at + kFrozenLaunch + kAtOnce;
  if (has_restarted() || !is_noticed()) return latest;
  if (lost) within(facts_.fault_at, kKeepAlive + 4 * kSecond + failure);
  switch (facts_.fault) {
    case LaunchFault::kKillAgent:
    case LaunchFault::kReset:
    case LaunchFault::kKillKeeper:
    case LaunchFault::kKillMpirun:
      within(facts_.fault_at, kSecond + failure);
      break;
    default:
      break;
  }
  return latest;
}

Nanos LaunchJudge::all_gone_by() const {
  Nanos by = job_.launch->ended_at + kPromisedEnd;
  if (!facts_.happened) return by;
  // An orphaned mpirun starts agents where its login was under way. They look for launch for ten seconds.
  if (facts_.fault == LaunchFault::kKillKeeper) by += 10 * kSecond;
  // Machines that do not hear of the end notice the silence.
  if (is_silent()) by = std::max(by, facts_.fault_at + kKeepAlive + kAgentsTime + kAtOnce);
  return std::max(by, facts_.fault_ends + kPromisedEnd);
}

Nanos LaunchJudge::all_silent_gone_by() const {
  return is_silent() ? facts_.fault_at + kSilence + kAgentsTime + kAtOnce : 0;
}

std::vector<const Process*> LaunchJudge::left_over() const {
  std::vector<const Process*> left;
  const auto lives = [](const Process* process) { return process != nullptr && !process->ended; };
  for (const auto& process : job_.world.processes()) {
    const bool counts = process->parent != nullptr && process->name != "daemon" && process->name != "rank-child";
    if (counts && lives(process.get())) left.push_back(process.get());
  }
  for (const RankRun& run : job_.runs) {
    if (run.process != nullptr && lives(run.process) && run.process->parent == nullptr) left.push_back(run.process);
    // On other machines only the agent ends what its rank has left, and Open MPI kills it there a second after the end
    // of mpirun.
    if (!lives(run.child)) continue;
    const bool is_orphan = facts_.happened && run.machine != 0 && run.agent->was_killed && kills_agents();
    if (!is_orphan) left.push_back(run.child);
  }
  return left;
}

}  // namespace trainyard::cluster_simulation
