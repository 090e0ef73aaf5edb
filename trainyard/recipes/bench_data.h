// `trainyard bench data`: how many images a second the input gives, and what it spends its time on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/data/base/stage_times.h"

namespace trainyard::recipes {

// The flags of input, and: model or image_size, batch_size, num_threads, seconds, warmup_epochs, tf_random_seed.
void declare_bench_data_flags(core::FlagTable& table);

struct DataRate {
  std::string name;  // "synthetic", "decode only", "full"
  double images_per_second = 0;
};

struct DataBenchReport {
  std::string dataset;
  int64_t samples = 0;  // in the data set
  int64_t batch_size = 0, height = 0, width = 0;
  int threads = 0;                 // all that work; the consumer only waits
  double seconds = 0;              // timed
  double first_batch_seconds = 0;  // from opening the data set to its first batch
  int64_t images = 0;              // taken in that time
  int64_t bytes = 0;               // encoded, read in that time
  data::StageSeconds stages;       // of all threads
  double waited_seconds = 0;       // of the consumer
  int64_t peak_memory_bytes = 0;   // resident, of the process
  std::vector<DataRate> rates;     // the last one is what was timed: "full"
};

// Throws what reading the flags and opening the data set does; kInvalidArgument without data_dir.
DataBenchReport bench_data(const core::FlagValues& values);

// For people; `total images/sec: X` is its last line.
std::string data_bench_text(const DataBenchReport& report);

}  // namespace trainyard::recipes
