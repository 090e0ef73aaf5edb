// A simulated training: what the seed decides about it, and what its ranks do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cluster_simulation/attempt.h"
#include "tests/cluster_simulation/disk.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

namespace trainyard::cluster_simulation {

// A collective may take much longer than the process group, as in a real training: the group is heard first.
inline constexpr std::chrono::milliseconds kCollectiveDeadline{20'000};
inline constexpr uint16_t kExchangePort = 29'600;

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

  static std::string name_of(int rank) { return fmt::format("rank {}", rank); }
  void problem(const std::string& text);
  // Returns what the training's state is after this step, on every rank.
  int64_t state_at(int64_t step) const;
};

// Does a rank's part of an attempt, on the main thread of its process.
void run_rank(Job& job, Attempt& attempt, int rank);

}  // namespace trainyard::cluster_simulation
