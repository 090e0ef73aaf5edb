// What the parts of `trainyard bench allreduce` share: how they meet, and how they take times.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/cli/bench_all_reduce.h"
#include "trainyard/core/base/communicator.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::cli {

constexpr std::chrono::milliseconds kBenchDeadline = std::chrono::minutes(2);

// Between the processes that were started, or within this one, with any algorithm.
constexpr const char* kBenchMode = "distributed_all_reduce";

// Returns what makes the communicators of gradients; empty: those of threads are made.
inline std::function<std::vector<std::unique_ptr<core::Communicator>>()> bench_communicators(
    const train::OpenDevices& devices) {
  return devices.make_gradient_communicators ? devices.make_gradient_communicators : devices.make_communicators;
}

// Collective: returns the median and the 95th percentile of times, each that of the slowest rank.
AllReduceTiming slowest_timing(core::Communicator& self, int64_t bytes, const std::string& operation,
                               const std::vector<double>& own);

// Returns "64K", "1M" or "1000": in the largest unit that divides the bytes.
std::string bytes_text(int64_t bytes);
// Returns "12.3 us" or "4.56 ms".
std::string time_text(double seconds);

}  // namespace trainyard::cli
