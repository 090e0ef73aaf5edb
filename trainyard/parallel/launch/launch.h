// `trainyard launch`: starts the processes of a training by Open MPI's mpirun, shows what they write, and deals with
// their ends. mpirun alone either kills the survivors of a failed process before they can say what they saw, or
// returns 0 whatever happened; it tears lines, and gives a process that is asked to stop one second.
//
//   launch -- keeper -- mpirun -+- agent -- rank 0
//                               +- agent -- rank 1     (mpirun's daemon stands between on other hosts)
//
// Agents connect to launch, by TCP on the loopback address or, with several hosts, on an address of `network`. Launch
// ended by SIGKILL ends all of them within five seconds: the keeper removes what is on this machine, agents that lose
// their connection end their ranks.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

// A number of ranks and what they run.
struct RankCommand {
  int ranks = 1;
  std::vector<std::string> arguments;  // the first is the program
};

struct LaunchOptions {
  // What to start; after it what to go on with when ranks fail, from most ranks to least. Without a second entry every
  // start has the ranks of the first.
  std::vector<RankCommand> commands;
  std::string trainyard;  // path of the program `trainyard`, on all hosts; its modes launch-rank and launch-keeper run
  // As mpirun takes them; both empty: all ranks run on this machine, and no port listens for other machines.
  std::string hosts;      // "a:2,b:2"
  std::string host_file;  // path
  std::string network;    // "10.0.0.0/24": where ports listen when ranks run on several machines; empty: on loopback
  std::string log_dir;    // a file rank-N.log for each rank is written there, behind what it has; empty: none
  int max_restarts = 0;   // how often all ranks are started again after one has failed (restart_delay)
  // Seconds: until all ranks have started; that the others have when one has failed; and when they are asked to stop.
  double start_timeout = 600, failure_timeout = 10, stop_timeout = 600;

  // Throws kInvalidArgument for what makes no sense.
  void validate() const;
};

// Exit codes of a rank that starting it again would not help: its flags are wrong; its data, a file or a checkpoint is
// missing or damaged. The second one `trainyard` ends with only where it is a rank of a launch, which it knows by the
// variable: alone it ends with 1, as with any failure.
inline constexpr int kWrongUse = 2, kWrongData = 65;
inline constexpr const char* kRankOfLaunchVariable = "TRAINYARD_RANK_OF_LAUNCH";

// Runs the ranks until all have ended, writes what they write to the standard streams, and returns the worst of their
// exit codes: 128 + n for a rank that signal n ended, 75 (core::kExitStoppedBySignal) when nothing is worse than a rank
// that was asked to stop. `stop` is passed on to the ranks as the signal by which it came (signal_of), and SIGUSR2 as
// it is. Call it from the main thread. Throws kUnsupported without mpirun, kPeerFailed when
// mpirun cannot start the ranks, kTimeout when they do not all start in time.
int launch(const LaunchOptions& options, const core::StopToken& stop);

// Returns the seconds that launch waits before it starts ranks again that have failed so often, one soon after the
// other: 1, 2, 4, ..., at most 60. What has made them fail, a network or a disk, may need time.
[[nodiscard]] double restart_delay(int failures);

// Returns the command line of mpirun for each of the commands, as a shell takes them.
std::string launch_command_lines(const LaunchOptions& options);

}  // namespace trainyard::parallel
