// How long all-reduces take: what `trainyard bench allreduce`, `trainyard doctor --all_reduce` and the choice of an
// algorithm (measured_all_reduce.h) share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

// Calls `work` `times` times, each after `barrier`. Returns the seconds of each.
std::vector<double> time_each(int64_t times, const std::function<void()>& barrier, const std::function<void()>& work);

// Collective: returns, for each entry, the seconds of the rank that took longest. All ranks pass as many and get the
// same.
std::vector<double> slowest_of_ranks(core::Communicator& self, const std::vector<double>& own);

// Returns the mean of the two middle values; of an odd number the middle one. There must be one at least.
double median_of(std::vector<double> values);

// Returns zeros, [elements], in memory of the kind that a training's gradients have.
at::Tensor exchanged_zeros(core::Communicator& self, int64_t elements);

// An operation of one rank on a tensor of some size.
struct TimedOperation {
  std::string name;
  // Runs it this many times, each after a barrier, and returns the seconds of each.
  std::function<std::vector<double>(int64_t times)> run;
};

// Runs each operation `times` times, in turns of `turn`, so that all of them see the same machine. Collective where the
// operations are. Returns this rank's seconds of each operation.
std::vector<std::vector<double>> time_in_turns(const std::vector<TimedOperation>& operations, int64_t times,
                                               int64_t turn);

}  // namespace trainyard::parallel
