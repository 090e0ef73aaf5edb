// Looks whether a simulated launch has kept its promises.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/cluster_simulation/launch.h"

#include "trainyard/core/threads/signal_watcher.h"

namespace trainyard::cluster_simulation {

inline constexpr Nanos kFrozenLaunch = 5 * kSecond;  // until its user kills it

enum class LaunchFault {
  kNone,
  kFailure,       // a rank ends with a code or by a signal
  kKillRank,      // a rank gets SIGKILL
  kKillAgent,     // an agent is killed
  kMachine,       // a machine loses power
  kFreezeAgent,   // an agent stops for ever
  kPauseAgent,    // an agent stops for a while
  kFreezeLaunch,  // launch stops until its user kills it
  kPauseLaunch,   // launch stops for a while
  kCut,           // a machine is cut off from all others
  kBriefCut,      // the same for a while
  kReset,         // the connections between a machine and that of launch are reset
  kKillLaunch,
  kKillKeeper,
  kKillMpirun,
  kStop,        // launch gets SIGTERM, SIGINT or SIGUSR1
  kSecondStop,  // and another one
  kUserSignal,  // launch gets SIGUSR2
  kSlowStart,   // ranks are started behind the deadline of the start
  kNoProgram,   // the program of the ranks is not there
  kSlowReader,  // what reads launch's output makes a pause
  kNoReader,    // what reads launch's output ends
  kCount
};
const char* launch_fault_name(LaunchFault fault);

// What has happened to a launch, and what it has printed.
struct LaunchFacts {
  LaunchFault fault = LaunchFault::kNone;
  int victim = 0;  // rank
  int victim_machine = 0;
  bool happened = false;        // the fault has met what it is for
  std::vector<bool> had_begun;  // by rank, at the fault
  Nanos begin = 0, fault_at = 0, fault_ends = 0;
  int stop_signal = 0;  // of kStop, and of the user who has waited long enough
  Nanos stop_at = kNever;
  std::vector<bool> ran_at_stop;  // by rank, when launch got a signal
  Nanos noted_at = 0;
  std::array<std::string, 2> printed;  // on standard output and error
};

// From the library's code: SIGKILL to all (5 s), the end of mpirun (10 s), the end of its keeper (10 s).
inline constexpr Nanos kByForce = 25 * kSecond;

inline Nanos nanos(double seconds) {
  return static_cast<Nanos>(seconds * kSecond);
}

// A code that does not count: launch has ended the rank.
inline constexpr int kExcluded = -1;
inline bool is_failing(int code) {
  return code != 0 && code != core::kExitStoppedBySignal && code != kExcluded;
}

class LaunchJudge {
 public:
  LaunchJudge(LaunchJob& job, const LaunchFacts& facts) : job_(job), facts_(facts) {}
  // Looks at how launch has ended, once it has.
  void judge();
  // Returns when launch must have ended, as far as can be told now.
  Nanos latest_end() const;
  // Returns when none of its processes may live any more, once launch has ended.
  Nanos all_gone_by() const;
  // The same for what a machine without a network has left to send.
  Nanos all_silent_gone_by() const;
  // Returns the processes that must not live then.
  std::vector<const Process*> left_over() const;
  // Looks at what is left then.
  void judge_what_is_left();

 private:
  struct SaidEnd {
    size_t rank = 0;
    std::string how;
  };
  bool ended_by_itself() const;
  bool can_report(const RankRun& run) const;
  bool is_lost(const RankRun& run) const;
  bool has_restarted() const { return job_.starts > 1; }
  bool is_noticed() const;
  bool is_silent() const;
  bool kills_agents() const;
  bool is_failure(const RankRun& run) const;
  Nanos last_end_of_ranks() const;
  // Returns what launch has printed of ends of ranks in its last start.
  std::vector<SaidEnd> said_ends() const;
  std::string expected_output(const RankRun& run, size_t stream) const;
  void judge_output();
  void judge_restart();
  void judge_ends();
  void judge_code();
  void judge_signals();
  void judge_time_to_save();
  void judge_failure_timeout();
  bool may_fail_to_start() const;
  std::vector<int> possible_codes(const RankRun& run, bool failed_first, Nanos first_failure) const;
  std::string describe(const RankRun& run) const;
  bool says(const std::string& text) const { return facts_.printed[1].find(text) != std::string::npos; }

  LaunchJob& job_;
  const LaunchFacts& facts_;
};

}  // namespace trainyard::cluster_simulation
