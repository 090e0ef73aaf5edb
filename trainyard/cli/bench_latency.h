// `trainyard bench latency`: what a person who sizes a server asks. How long a batch takes, how long requests wait that
// arrive at a given rate, and how many a second one may send while 99 of 100 are answered within a bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/cli/benched_model.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::cli {

struct LatencyBenchOptions {
  BenchedModel benched;
  std::vector<int64_t> batch_sizes{1, 2, 4, 8, 16, 32};  // different ones, ascending
  std::optional<double> rate;         // requests a second that arrive; unset: no arrivals, or what p99_seconds finds
  std::optional<double> p99_seconds;  // the bound on the wait of 99 of 100 requests
  double seconds = 5;                 // of each measurement, of 20 batches or 200 requests or more
  uint64_t seed = 1234;               // of the arrivals
  // Looked at before each batch.
  core::StopToken stop = core::StopSource().token();
};

// Declares the model's flags, and: batch_sizes, rate, p99_ms, seconds, tf_random_seed, json.
void declare_bench_latency_flags(core::FlagTable& table);
// Reads these flags. Throws kInvalidArgument.
LatencyBenchOptions read_bench_latency_options(const core::FlagValues& values);

// Times in seconds, by nearest rank.
struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

// Batches of one size, one after the other.
struct BatchLatency {
  int64_t batch_size = 0;
  int64_t batches = 0;  // that were timed
  Percentiles seconds;  // of a batch
  double images_per_second = 0;
};

// Requests of one image each that arrive at random and are answered in batches of at most `most`.
struct ArrivalLatency {
  int64_t most = 0;
  double rate = 0;  // that arrived, a second
  int64_t requests = 0;
  Percentiles seconds;  // from arrival to answer
  double mean_batch = 0;
  double busy = 0;  // part of the time in which a batch ran
};

struct LatencyBenchReport {
  std::string model, executor, dtype;  // dtype: "" is float32
  std::string image_size;              // "224 x 224"
  int threads = 0;
  std::optional<double> p99_seconds;
  std::vector<BatchLatency> batches;     // by batch size
  std::vector<ArrivalLatency> arrivals;  // by `most`, where a rate is given; else those that the search measured
  // The place in `arrivals` of what meets the bound best: with a rate the shortest p99, else the highest rate. Unset
  // where there is no bound or none meets it.
  std::optional<size_t> best;
};

// Runs the frozen network on random images, with one executor for each batch size on the same weights; a batch of
// another size runs as the next larger one. Arrivals run on the machine's clock, except while the highest rate is
// searched: that is forecast from the measured times of batches, then measured. Throws kInvalidArgument for options out
// of range, kNotFound for an unknown model, kUnsupported for a missing GPU, kCancelled after a stop.
LatencyBenchReport bench_latency(const LatencyBenchOptions& options);

std::string latency_bench_text(const LatencyBenchReport& report);
std::string latency_bench_json(const LatencyBenchReport& report);

}  // namespace trainyard::cli
