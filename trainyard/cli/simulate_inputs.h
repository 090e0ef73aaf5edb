// What `trainyard simulate` reads: what was measured, and numbers with units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/simulation/step_prediction.h"

namespace trainyard::cli {

// Returns the bytes a second of "100mbit", "10gbit" or "1.5gbit": powers of 1000, bits as networks count them. Throws
// kInvalidArgument.
double parse_bandwidth(const std::string& text);
// Returns the seconds of "50us", "1ms" or "0.1s". Throws kInvalidArgument.
double parse_latency(const std::string& text);
// Returns the numbers of workers of "1,2,4". Throws kInvalidArgument for none, for what is no number from 1 to
// kMostSimulatedWorkers.
std::vector<int> parse_workers(const std::vector<std::string>& texts);
constexpr int kMostSimulatedWorkers = 8192;

// Times that the user gives instead of measuring them.
struct GivenCompute {
  std::string model{}, dataset{};  // empty: what the file of times says; the first data set that has the model
  std::optional<double> forward_seconds{}, backward_seconds{}, update_seconds{};
  std::optional<int64_t> batch_size{};
};

// Returns the compute of a step by a file of layers' times (docs/formats/layers.md: of `trainyard bench layers --json`,
// or of a run's --tfprof_file), by the text of the file; what `given` has replaces what it says, a batch size only
// together with forward and backward. Without a file (an empty path) `given` must have the model, forward and backward,
// and layers take backward time by their flops. Throws kInvalidArgument, and kCorruptData for a text that is none of
// these.
parallel::ComputeProfile read_compute(const std::string& path, const std::string& text, const GivenCompute& given);

// What `trainyard bench allreduce --json` has measured.
struct MeasuredLink {
  int ranks = 0;
  std::string algorithm{};  // as --algorithm names it
  std::vector<parallel::MeasuredAllReduce> all_reduces{};
};
// Throws kCorruptData for another text, kInvalidArgument for one of a single process, or of an algorithm that was
// chosen while it ran.
MeasuredLink read_measured_link(const std::string& path, const std::string& text);

}  // namespace trainyard::cli
