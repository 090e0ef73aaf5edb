// A simulated training: what the seed decides about it, and what its ranks do.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cluster_simulation/disk.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

#include "trainyard/core/base/error.h"

namespace trainyard::cluster_simulation {

inline constexpr std::chrono::milliseconds kStartDeadline{3000}, kStepDeadline{1000}, kGrace{500};
// A collective may take much longer than the process group, as in a real training: the group is heard first.
inline constexpr std::chrono::milliseconds kCollectiveDeadline{20'000};
inline constexpr uint16_t kHubPort = 29'500, kExchangePort = 29'600;

enum class Fault {
  kNone,
  kKill,      // a process is killed
  kMachine,   // a machine loses power: its peers hear nothing
  kFreeze,    // a process stops, and continues when the others have ended
  kPause,     // a process stops for less than a deadline
  kHang,      // a rank computes for ever; its other threads live
  kCut,       // a rank's machine hears from no other one, and is not heard
  kBriefCut,  // the same, for less than a deadline
  kCutPair,   // two machines do not hear each other
  kReset,     // the connections between two machines are reset
  kDisagree,  // a rank calls another collective than the others
  kCount
};
const char* fault_name(Fault fault);

// One attempt of the training: its processes, from when they are started to when all of them have ended.
struct Attempt {
  int number = 0;
  Fault fault = Fault::kNone;
  int victim = 0, other = 1;  // ranks
  Nanos fault_time = 0;       // after the attempt's begin
  int64_t fault_step = 0;     // of kHang and kDisagree
  bool happened = false;      // the fault has met its victim at work
  Nanos begin = 0, fault_at = 0;
  bool stranger = false;  // a process of no training calls rank 0 and the exchange
  std::string place;      // what rank 0 has shared through the launcher

  struct Rank {
    bool ended = false;
    std::optional<core::Error> error;
    std::optional<core::Error> reported;  // what the process group said, when the rank ended
    Nanos ended_at = 0;
    bool forced = false;  // ended by the last resort
    int64_t begun_step = -1;
  };
  std::vector<Rank> ranks;
};

struct Job {
  Job(World& world_of_it, Network& network_of_it, SimulatedDisk& disk_of_it)
      : world(world_of_it), network(network_of_it), disk(disk_of_it) {}

  World& world;
  Network& network;
  SimulatedDisk& disk;
  uint64_t content = 0;  // seed of the numbers that are exchanged
  int ranks = 2, replicas = 1;
  std::string algorithm;  // an all_reduce_spec; "chain": in small chunks; empty: the default
  bool launcher_shares = false;
  bool saves_in_background = false;
  int64_t steps = 4, elements = 1000, save_every = 1;
  Nanos longest_compute = 30 * kMillisecond;
  int64_t saved_step = 0;  // the last that rank 0 has reported to all as saved
  std::vector<std::string> problems;
  Attempt* attempt = nullptr;

  void problem(const std::string& text);
  // Returns what the training's state is after this step, on every rank.
  int64_t state_at(int64_t step) const;
};

// Does a rank's part of an attempt, on the main thread of its process.
void run_rank(Job& job, Attempt& attempt, int rank);

}  // namespace trainyard::cluster_simulation
