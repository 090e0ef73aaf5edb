// Learning rates as functions of the global step (from 0). Plain functions that combine:
//
//   LearningRate rate = with_warmup(cosine(0.4, total_steps, warmup_steps), 0.4, warmup_steps);
//   rate(17)
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

using LearningRate = std::function<double(int64_t step)>;

LearningRate constant(double rate);

// Returns rates[i] until and including boundaries[i]. Boundaries ascend; there is one more rate than boundaries.
LearningRate piecewise(std::vector<int64_t> boundaries, std::vector<double> rates);

// Rates that change at whole epochs, as tf_cnn_benchmarks takes them.
struct PiecewiseEpochs {
  std::vector<int64_t> boundary_epochs;  // ascending
  std::vector<double> rates;             // one more than boundaries
};
// Reads tf_cnn_benchmarks' "LR0;E1;LR1;...;En;LRn". Throws kInvalidArgument with the texts of tf_cnn_benchmarks.
PiecewiseEpochs parse_piecewise(std::string_view schedule);
// Returns the schedule in steps, with boundaries at int(E * batches_per_epoch) - 1. Throws kInvalidArgument.
LearningRate piecewise(const PiecewiseEpochs& schedule, double batches_per_epoch);

// Returns rate * factor^floor(step / decay_steps), but not less than `minimum`.
LearningRate exponential_staircase(double rate, int64_t decay_steps, double factor, double minimum);

// Falls from `rate` at `begin` to 0 at `total_steps` along half a cosine (Loshchilov and Hutter, "SGDR", 2017).
LearningRate cosine(double rate, int64_t total_steps, int64_t begin = 0);

// A rate that falls at epochs, as models prescribe it.
struct EpochSchedule {
  double rate = 0;                      // after the warm-up, times the first factor
  std::vector<double> boundary_epochs;  // ascending
  std::vector<double> factors;          // of `rate`, one more than boundaries; both empty: constant
  double warmup_epochs = 0;             // linear, from 0
};
// Returns the schedule in steps. A boundary falls on step int(epoch * batches_per_epoch), which still has the rate
// before it.
LearningRate by_epochs(const EpochSchedule& schedule, double batches_per_epoch);

// Returns base_rate * global_batch_size / base_batch_size (Goyal et al., "Accurate, large minibatch SGD", 2017, section
// 2.1), divided by the number of replicas whose gradients an update sums instead of averaging them.
double scaled_rate(double base_rate, int64_t base_batch_size, int64_t global_batch_size, int summed_replicas = 1);

// Replaces the schedule while step < warmup_steps: the rate is initial * step / warmup_steps there.
LearningRate with_warmup(LearningRate schedule, double initial, int64_t warmup_steps);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
