// Selects all-reduce algorithms by their times: functions of numbers, which measure nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/collectives/all_reduce_candidates.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"

namespace trainyard::parallel {

// An algorithm that took so many times as long as the fastest is not measured with larger tensors.
constexpr double kGiveUpRatio = 3;

// Names and times of the algorithms that the layout allows. The same on all processes.
struct MeasuredAllReduces {
  std::vector<std::string> in_rank_order;  // algorithms, the preferred ones first
  std::vector<std::string> other;          // of kAny
  std::vector<AllReduceTime> times;        // by size, then by algorithm
};

// Returns the choice by these times. Its spec is:
// - of kOfRanks, "shared_memory" or a spec of the other names above. Messages replace the shared memory only where they
//   are faster over all sizes, and an algorithm the one before it in `in_rank_order` where it takes at most 0.9 times
//   as long.
// - of kAny, an all_reduce_spec, or "default" where the algorithms in the order of the ranks are as fast.
// Returns nothing without times of 64 KiB or more: on a busy machine those of smaller tensors say nothing of gradients.
std::optional<AllReduceChoice> choose_by_times(const MeasuredAllReduces& measured, AllReduceOrder order);

// One size at which a choice is slower than another algorithm.
struct SlowAllReduce {
  int64_t bytes = 0;
  std::string chosen, fastest;
  double chosen_seconds = 0, fastest_seconds = 0;
};
// Returns the sizes at which the algorithm of `spec` took more than `ratio` times as long as the fastest one that the
// spec may name. An algorithm without a time at a size is passed over there.
std::vector<SlowAllReduce> slow_sizes(const std::string& spec, AllReduceOrder order,
                                      const std::vector<AllReduceTime>& times, double ratio = 1.5);

}  // namespace trainyard::parallel
