// What the processes of a simulated `trainyard launch` share: the plans of its ranks, and what has become of them.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

#include "trainyard/parallel/launch/launch.h"

namespace trainyard::cluster_simulation {

// What a rank does.
struct RankPlan {
  struct Write {
    Nanos pause = 0;  // before it
    bool is_error = false;
    std::string text;  // any part of a line, or several lines
  };
  std::vector<Write> writes;
  bool leaves_child = false;  // starts a process that hears no SIGTERM, and does not wait for it
  enum class OnStop { kEnds, kIgnores, kSaves } on_stop = OnStop::kSaves;
  Nanos time_to_save = 0;
  enum class End { kCode, kSignal, kEndless } end = End::kCode;
  int value = 0;  // exit code or signal
};

struct RankRun {
  RankPlan plan;
  int machine = 0;
  Process* process = nullptr;  // null: it has not begun
  Process* agent = nullptr;
  Process* child = nullptr;            // that it has left
  std::array<std::string, 2> written;  // what its pipes have taken, of output and error
};

struct LaunchJob {
  LaunchJob(World& world_of_it, Network& network_of_it) : world(world_of_it), network(network_of_it) {}
  void problem(const std::string& text) { problems.push_back(text); }

  World& world;
  Network& network;
  parallel::LaunchOptions options;
  std::vector<RankRun> runs;     // of the start that runs
  std::vector<RankRun> earlier;  // of the start before; empty: none
  int starts = 0;                // how often mpirun was started
  Nanos started_at = 0;          // the last time
  std::function<RankPlan(size_t rank)> plan_of_restart;
  Nanos time_to_begin = 0;             // that mpirun takes before it starts anything
  std::vector<Nanos> times_to_log_in;  // by machine
  Process *launch = nullptr, *keeper = nullptr, *mpirun = nullptr;
  std::vector<Process*> daemons;  // of mpirun, by machine; null: none
  std::string error;              // what launch() has thrown
  std::vector<std::string> problems;
};

// Writes all of it, unless the other end has gone.
void write_all(int descriptor, std::string_view text);
// The program mpirun, and what it starts on other machines.
int run_mpirun(LaunchJob& job, const std::vector<std::string>& words);
// Calls launch() with a stop that signals request, as the command line does. Returns the exit code.
int run_launch(LaunchJob& job);
// Starts a process on the machine `far`, or on that of launch where launch can be reached there alone, that says to
// launch what no agent of it says.
void start_launch_stranger(LaunchJob& job, RandomDraws& draws, int far);
// Returns what runs for these words: the modes of `trainyard`, the simulated mpirun, a rank; null for all others.
std::function<int()> find_launch_program(LaunchJob& job, const std::vector<std::string>& words);

}  // namespace trainyard::cluster_simulation
