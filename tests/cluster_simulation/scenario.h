// What a seed simulates, and what is found wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cluster_simulation {

struct SeedOptions {
  uint64_t seed = 0;
  bool trace = false;
};

struct SeedReport {
  std::vector<std::string> problems;  // empty: every promise was kept
  std::string summary;                // what the seed was about
  uint64_t trace_hash = 0, switches = 0;
  int64_t simulated_nanos = 0;
};

// A training of several ranks, whose processes, machines and network fail, and which is started again until it is done.
SeedReport simulate_training(const SeedOptions& options);
// The same of workers and parameter servers.
SeedReport simulate_servers(const SeedOptions& options);
// A process that saves checkpoints on a failing disk, dies and continues, several times.
SeedReport simulate_checkpoints(const SeedOptions& options);
// A launch of ranks by agents on several machines, one of whose parts fails.
SeedReport simulate_launch(const SeedOptions& options);

}  // namespace trainyard::cluster_simulation
