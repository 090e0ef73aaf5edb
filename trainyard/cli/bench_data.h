// `trainyard bench data`: measures how many images per second the input makes, and what it spends its time on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/base/stage_times.h"
#include "trainyard/frontends/options/input_settings.h"

namespace trainyard::cli {

struct DataBenchOptions {
  frontends::InputOptions input;
  std::string model;          // model whose image size is used; empty: none
  nn::Size2d image_size = 0;  // pixels; 0: the model's, or 224 (CIFAR-10 and shapes: 32)
  int64_t batch_size = 64;
  std::optional<int> threads;  // threads of the input; unset: input.threads, else all cores
  double seconds = 10;         // duration of the measurement; a quarter of that for each comparison
  int64_t warmup_epochs = 0;   // passes over the data before the measurement
  int64_t batch_group_size = 1;
  core::StopToken stop = core::StopSource().token();  // looked at before each batch
};

// Declares the flags of input, and: model or image_size, batch_size, num_threads, seconds, warmup_epochs,
// tf_random_seed.
void declare_bench_data_flags(core::FlagTable& table);
// Reads these flags. Throws kInvalidArgument.
DataBenchOptions read_bench_data_options(const core::FlagValues& values);

struct DataRate {
  std::string name;  // "synthetic", "decode only", "full"
  double images_per_second = 0;
};

struct DataBenchReport {
  std::string dataset;
  int64_t samples = 0;  // in the data set
  int64_t batch_size = 0, height = 0, width = 0;
  int threads = 0;                 // all working threads; the consumer only waits
  double seconds = 0;              // timed
  double first_batch_seconds = 0;  // from opening the data set to its first batch
  int64_t images = 0;              // images taken in that time
  int64_t bytes = 0;               // encoded bytes read in that time
  data::StageSeconds stages;       // of all threads
  double waited_seconds = 0;       // of the consumer
  int64_t peak_memory_bytes = 0;   // resident, of the process
  std::vector<DataRate> rates;     // the last one is the measurement: "full"
};

// Runs the benchmark. Throws what preparing the input and opening the data set throws, and kInvalidArgument without
// data_dir, and kCancelled after a stop.
DataBenchReport bench_data(const DataBenchOptions& options);

// Returns the report as text; `total images/sec: X` is its last line.
std::string data_bench_text(const DataBenchReport& report);

}  // namespace trainyard::cli
