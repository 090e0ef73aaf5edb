// A simulated training with parameter servers: what the seed decides about it, and what its processes do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cluster_simulation/attempt.h"
#include "tests/cluster_simulation/disk.h"
#include "tests/cluster_simulation/world.h"
#include <ATen/core/Tensor.h>

#include "trainyard/parallel/servers/server_options.h"

namespace trainyard::cluster_simulation {

struct ServedJob {
  ServedJob(World& world_of_it, SimulatedDisk& disk_of_it) : world(world_of_it), disk(disk_of_it) {}

  World& world;
  SimulatedDisk& disk;
  uint64_t content = 0;  // seed of the gradients
  parallel::ClusterOptions cluster{};
  std::string optimizer = "sgd";
  bool with_processes = true;  // the workers have a process group: always where there are several
  int64_t steps = 4, elements = 100, save_every = 1;
  Nanos longest_compute = 30 * kMillisecond;
  int64_t saved_step = 0;  // the last that the chief has saved; kAsynchronous: updates
  // Values and slots behind each number of updates.
  std::vector<std::vector<at::Tensor>> states;
  std::vector<std::string> problems;
  Attempt* attempt = nullptr;

  int processes() const { return cluster.workers + cluster.servers; }
  std::string name_of(int process) const;
  bool is_asynchronous() const { return cluster.mode == parallel::ServerMode::kAsynchronous; }
  // Whether this worker finds gradients that are not finite in this step, so that its update is left out.
  bool found_inf(int64_t step, int worker) const;
  // Whether the chief adds 1 to all values behind this step.
  bool changes_values(int64_t step) const;
  // Computes `states`, with one optimizer and the reduced gradients of all workers.
  void expect_states();
  void problem(const std::string& text);
};

// Do the part of a worker and of a server in an attempt, on the main threads of their processes.
void run_worker(ServedJob& job, Attempt& attempt, int worker);
void run_server(ServedJob& job, Attempt& attempt, int server);

}  // namespace trainyard::cluster_simulation
