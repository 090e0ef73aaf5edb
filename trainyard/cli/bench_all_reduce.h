// `trainyard bench allreduce`: how long the all-reduce of a model's gradients takes, as tf_cnn_benchmarks'
// all_reduce_benchmark.py measures it, and that of single tensors by size, compared with MPI's own MPI_Allreduce and
// with a copy of as many bytes in memory. On CPUs: replicas on threads of one process, or processes of mpirun.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::cli {

struct AllReduceBenchOptions {
  std::string model = "trivial", dataset = "imagenet";
  nn::Size2d image_size = 0;  // pixels; 0: the model's own
  // How replicas exchange gradients, and how many there are; its GPU flags are not used. Single tensors are exchanged
  // by the default algorithm.
  frontends::DeviceOptions device{};
  int64_t warmup_batches = 10;   // steps before those that are timed
  int64_t batches = 100;         // steps; for each size of tensors at most as many all-reduces
  int64_t iters_per_step = 5;    // all-reduces of all gradients
  int64_t display_every = 10;    // steps between two lines
  std::vector<int64_t> sizes{};  // bytes of single tensors
  std::string optimizer{};       // whose updates of the parameters are measured (bench_update.h); empty: none
};

void declare_bench_all_reduce_flags(core::FlagTable& table);
// Reads these flags. Throws kInvalidArgument; kUnsupported for --variable_consistency=relaxed.
AllReduceBenchOptions read_bench_all_reduce_options(const core::FlagValues& values);

// Returns the bytes of "64K", "1M", "2G" (powers of 1024) or "4096". Throws kInvalidArgument for anything else, for
// what is not a multiple of a float's 4 bytes, and above 4G.
int64_t parse_tensor_bytes(const std::string& text);

// One operation on tensors of one size. A time is that of the rank that took longest.
struct AllReduceTiming {
  int64_t bytes = 0;
  std::string operation;  // "all-reduce", "MPI_Allreduce", "copy"
  int64_t times = 0;
  double median_seconds = 0, p95_seconds = 0;

  // Returns bytes per second: those of one rank's tensor by the median.
  double algorithm_bandwidth() const { return static_cast<double>(bytes) / median_seconds; }
  // Returns the bytes per second that each rank must send and receive at least for an all-reduce of `ranks`:
  // 2 (ranks - 1) / ranks of the tensor, by the median (NVIDIA's nccl-tests, doc/PERFORMANCE.md). A copy's is its
  // algorithm_bandwidth().
  double bus_bandwidth(int ranks) const;
};

struct AllReduceBenchReport {
  int rank = 0;  // of this process's first replica: rank 0 reports
  int ranks = 1, processes = 1;
  std::string model;
  std::string algorithm;       // the all_reduce_spec, or "hierarchical_copy"; empty: the default
  int64_t gradient_bytes = 0;  // of the model
  int64_t iters_per_step = 0;
  double step_seconds = 0;  // mean
  std::string mpi;          // "Open MPI v4.1.4"; empty: MPI_Allreduce was not measured
  std::string mpi_absent;   // why it was not
  std::string optimizer;    // of `updates`
  std::vector<AllReduceTiming> timings{}, updates{};
};

// Collective over the processes. Writes the lines of all_reduce_benchmark.py to `out` on rank 0, and nothing on the
// others. Throws what opening the devices, building the model and the exchange throw; kInternal for a wrong sum.
AllReduceBenchReport bench_all_reduce(const AllReduceBenchOptions& options, std::ostream& out);

// Return the timings by size as a table, as JSON and as an SVG image; empty without any.
std::string all_reduce_bench_table(const AllReduceBenchReport& report);
std::string all_reduce_bench_json(const AllReduceBenchReport& report);
std::string all_reduce_bench_svg(const AllReduceBenchReport& report);

}  // namespace trainyard::cli
