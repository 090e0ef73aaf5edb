// The highest rates that were measured on this machine: the roof that a run is compared with (Williams et al. 2009, the
// roofline model). `trainyard doctor --limits` measures and saves them; the summary of a run reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// Rates per second, of one thread and of all threads together. 0 when the processor lacks the instructions.
struct MachineLimits {
  int threads = 0;  // threads of the "all" rates: the cores that the measuring process could use
  double fp32_flops_one = 0, fp32_flops_all = 0;  // fused multiply-adds, a multiply-add counted as two
  double bf16_flops_one = 0, bf16_flops_all = 0;  // products of bfloat16 added up in fp32 (AVX512_BF16; not AMX)
  double read_bytes = 0, copy_bytes = 0, triad_bytes = 0;  // memory traffic of all threads; stores bypass the caches
  // The smallest part of the time for which the threads had a core while they were measured. Well below 1 means a busy
  // machine, whose limits are higher than these.
  double processor_share = 0;
  int64_t measured_at = 0;  // seconds since the Unix epoch

  bool measured_on_busy_machine() const { return processor_share < 0.9; }
  // Returns the rate of all threads, for computations in 16 or in 32 bits.
  double flops(bool sixteen_bits) const { return sixteen_bits && bf16_flops_all > 0 ? bf16_flops_all : fp32_flops_all; }
};

struct LimitOptions {
  int threads = 0;          // 0: the cores that this process may use
  double seconds = 0.2;     // of each of the three tries of each of the seven measurements; the best counts
  int64_t array_bytes = 0;  // of each of three arrays; 0: four times the last-level cache, 64 to 512 MiB, no more than
                            // 1/16 of the memory
};

// Measures the limits. The machine should have nothing else to do. Throws kUnsupported without AVX2.
MachineLimits measure_machine_limits(const LimitOptions& options = {});

// Writes the limits to a file in the user's cache folder and returns its path. There is one file for each kind of
// machine (processor, cores that this process may use, instruction sets). An empty `directory` means
// $XDG_CACHE_HOME/trainyard, or ~/.cache/trainyard. Throws kIo or kNoSpace, and kInvalidArgument when there is no such
// folder.
std::string save_machine_limits(const MachineLimits& limits, std::string_view directory = {},
                                FileSystem& files = local_file_system());
// Reads the limits back. Returns nothing when this kind of machine was not measured, or the file cannot be read.
std::optional<MachineLimits> load_machine_limits(std::string_view directory = {},
                                                 FileSystem& files = local_file_system());

}  // namespace trainyard::core
