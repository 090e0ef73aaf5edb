// `trainyard launch`: starts the processes of a training by Open MPI's mpirun, prints their output, and handles their
// exits. mpirun alone either kills the survivors of a failed process before they can report, or returns 0 whatever
// happened; it splits lines, and gives a process that is asked to stop one second.
//
//   launch -- keeper -- mpirun -+- agent -- rank 0
//                               +- agent -- rank 1     (mpirun's daemon is between them on other hosts)
//
// Agents connect to launch, by TCP on the loopback address or, with several hosts, on an address of `network`. When
// launch is ended by SIGKILL, all processes end within five seconds: the keeper ends those on this machine, and agents
// that lose their connection end their ranks.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

// A number of ranks and the command that they run.
struct RankCommand {
  int ranks = 1;
  std::vector<std::string> arguments;  // the first is the program
  // Further arguments of each rank, which hold no spaces, or none for all.
  std::vector<std::vector<std::string>> of_rank{};
};

struct LaunchOptions {
  // The command to start, then commands to continue with when ranks fail, from most ranks to least. Without a second
  // entry every restart uses the first.
  std::vector<RankCommand> commands;
  std::vector<std::string> names{};  // of the ranks in messages, "worker 0"; empty: "rank 0"
  std::string trainyard;  // path of the program `trainyard`, on all hosts; its modes launch-rank and launch-keeper run
  // As mpirun takes them; both empty: all ranks run on this machine, and no port listens for other machines.
  std::string hosts;      // "a:2,b:2"
  std::string host_file;  // path
  std::string network;    // "10.0.0.0/24": where ports listen when ranks run on several machines; empty: on loopback
  std::string log_dir;    // folder of the files rank-N.log, one per rank, which are appended to; empty: none
  int max_restarts = 0;   // how often all ranks are started again after one has failed (restart_delay)
  // Seconds until all ranks must have started; until the others must have ended after one has failed; and after a stop
  // was requested.
  double start_timeout = 600, failure_timeout = 10, stop_timeout = 600;

  // Throws kInvalidArgument for invalid options.
  void validate() const;
  // Returns "rank 2", or "worker 0 (rank 2)" with names.
  [[nodiscard]] std::string name_of(size_t rank) const;
};

// Exit codes of a rank after which a restart would not help: its flags are wrong; its data, a file or a checkpoint is
// missing or damaged. `trainyard` returns the second one only as a rank of a launch, which the variable tells it: else
// it returns 1, as after any failure.
inline constexpr int kWrongUse = 2, kWrongData = 65;
inline constexpr const char* kRankOfLaunchVariable = "TRAINYARD_RANK_OF_LAUNCH";

// Runs the ranks until all have ended, copies their output to the standard streams, and returns the worst of their exit
// codes: 128 + n for a rank that signal n ended, 75 (core::kExitStoppedBySignal) when the worst is a rank that was
// asked to stop. `stop` is forwarded to the ranks as the signal that requested it (signal_of), and SIGUSR2 unchanged.
// Call it from the main thread. Throws kUnsupported without mpirun and, at the first start and the last restart,
// kPeerFailed when mpirun cannot start the ranks, kTimeout when they do not all start in time.
int launch(const LaunchOptions& options, const core::StopToken& stop);

// Returns the seconds that launch waits before a restart, after so many failures shortly after each other: 1, 2, 4,
// ..., at most 60. A network or a disk may need time to recover.
[[nodiscard]] double restart_delay(int failures);

// Returns the command line of mpirun for each of the commands, as a shell takes them.
std::string launch_command_lines(const LaunchOptions& options);

}  // namespace trainyard::parallel
