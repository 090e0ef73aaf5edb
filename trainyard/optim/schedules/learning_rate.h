// Schedules: numbers of a training as functions of the global step (from 0) only, so that a resumed run has the same
// values. They are plain functions that can be combined; decay.h has smooth decays:
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

using Schedule = std::function<double(int64_t step)>;
using LearningRate = Schedule;

// Returns int(batches_per_epoch * epochs), the steps of so many epochs, but at most 4e18.
[[nodiscard]] int64_t whole_steps(double batches_per_epoch, double epochs);

LearningRate constant(double rate);

// Returns a schedule with rates[i] up to and including boundaries[i]. Boundaries ascend; there is one more rate than
// boundaries.
[[nodiscard]] LearningRate piecewise(std::vector<int64_t> boundaries, std::vector<double> rates);

// Rates that change at whole epochs, as in tf_cnn_benchmarks.
struct PiecewiseEpochs {
  std::vector<int64_t> boundary_epochs{};  // ascending
  std::vector<double> rates{};             // one more than boundaries
};
// Reads tf_cnn_benchmarks' "LR0;E1;LR1;...;En;LRn". Throws kInvalidArgument with the texts of tf_cnn_benchmarks.
PiecewiseEpochs parse_piecewise(std::string_view schedule);
// Returns the schedule in steps, with boundaries at int(E * batches_per_epoch) - 1. Throws kInvalidArgument.
[[nodiscard]] LearningRate piecewise(const PiecewiseEpochs& schedule, double batches_per_epoch);

// A rate that falls at given epochs, as models define it.
struct EpochSchedule {
  double rate = 0;                        // after the warm-up, times the first factor
  std::vector<double> boundary_epochs{};  // ascending
  std::vector<double> factors{};          // of `rate`, one more than boundaries; both empty: constant
  double warmup_epochs = 0;               // linear, from 0
};
// Returns the schedule in steps. A boundary falls on step int(epoch * batches_per_epoch), which still has the rate
// before it.
[[nodiscard]] LearningRate by_epochs(const EpochSchedule& schedule, double batches_per_epoch);

// How a rate grows with the global batch.
enum class BatchScaling {
  kLinear,      // Goyal et al., "Accurate, large minibatch SGD", 2017, section 2.1
  kSquareRoot,  // Krizhevsky, "One weird trick", 2014, section 5; You et al., "LAMB", 2020
};
// Returns base_rate times global_batch_size / base_batch_size, or its square root, divided by the number of replicas
// whose gradients an update sums instead of averaging them.
[[nodiscard]] double scaled_rate(double base_rate, int64_t base_batch_size, int64_t global_batch_size,
                                 int summed_replicas = 1, BatchScaling scaling = BatchScaling::kLinear);

// Replaces the schedule while step < warmup_steps: the rate rises there on a line from `start` at step 0 to `initial`,
// which it would reach at warmup_steps. Paddle's LinearWarmup and tf_cnn_benchmarks' warm-up.
LearningRate with_warmup(LearningRate schedule, double initial, int64_t warmup_steps, double start = 0);
// Multiplies the schedule while step < warmup_steps by a factor that rises on a line from `start_factor` at step 0 to 1
// at warmup_steps. PyTorch's LinearLR, chained with the schedule.
LearningRate times_warmup(LearningRate schedule, int64_t warmup_steps, double start_factor = 0);
// Returns the schedule shifted by `steps`, with its value at 0 until then. For schedules that begin after a warm-up.
[[nodiscard]] LearningRate delayed(LearningRate schedule, int64_t steps);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
