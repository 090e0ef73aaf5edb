// Schedules: numbers of a training as functions of the global step (from 0) only, so that a resumed run has the same
// values. They are plain functions that can be combined:
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

// Smooth decays. After its last step each keeps its last value.
//

// All of these throw kInvalidArgument for rates that are negative or not finite, and for lengths below one step.

// Returns rate * factor^(step / decay_steps), but not less than `minimum`. TensorFlow's ExponentialDecay.
[[nodiscard]] LearningRate exponential(double rate, int64_t decay_steps, double factor, double minimum = 0);
// Returns rate * factor^floor(step / decay_steps), but not less than `minimum`. The same with staircase=True; PyTorch's
// StepLR.
[[nodiscard]] LearningRate exponential_staircase(double rate, int64_t decay_steps, double factor, double minimum);

// TensorFlow's PolynomialDecay: (rate - end) * (1 - step / steps)^power + end. PyTorch's PolynomialLR has an end of 0.
struct PolynomialDecay {
  double rate = 0;
  int64_t steps = 0;
  double end = 0;
  double power = 1;
  bool cycle = false;  // after `steps` the decay is extended to the next multiple of them, so that the rate jumps up
};
LearningRate polynomial(const PolynomialDecay& decay);

// Falls from `rate` at `begin` to `minimum` at `total_steps` along half a cosine (Loshchilov and Hutter, "SGDR", 2017).
LearningRate cosine(double rate, int64_t total_steps, int64_t begin = 0, double minimum = 0);

// Repeats the cosine decay: PyTorch's CosineAnnealingWarmRestarts (T_0, T_mult, eta_min), and Keras'
// CosineDecayRestarts (first_decay_steps, t_mul, m_mul, alpha times the initial rate).
struct CosineRestarts {
  double rate = 0;
  int64_t period = 0;        // steps to the first restart
  double period_factor = 1;  // length of each period relative to the previous one; at least 1
  double rate_factor = 1;    // initial rate of each period above the minimum, relative to the previous one; at most 1
  double minimum = 0;
};
LearningRate cosine_restarts(const CosineRestarts& restarts);
// Returns the steps before `end` at which a period begins, without step 0; at most `most` of them.
[[nodiscard]] std::vector<int64_t> restart_steps(const CosineRestarts& restarts, int64_t end, size_t most);

// One cycle (Smith and Topin, "Super-convergence", 2018), as PyTorch's OneCycleLR computes it: the rate rises from
// rate / start_divisor to `rate`, and falls to rate / (start_divisor * end_divisor) at the last step. The momentum goes
// the other way.
struct OneCycle {
  enum class Shape { kCosine, kLinear };
  double rate = 0;    // the highest
  int64_t steps = 0;  // of the whole cycle
  double rise = 0.3;  // part of the steps in which the rate rises, in (0, 1)
  Shape shape = Shape::kCosine;
  double start_divisor = 25, end_divisor = 1e4;
  bool three_phases = false;  // it falls to its initial value in as many steps as it rose, and then to the final one
  double least_momentum = 0.85, most_momentum = 0.95;
};
LearningRate one_cycle(const OneCycle& cycle);
// Returns the corresponding momentum: a schedule of an optimizer's "momentum" or "beta1".
[[nodiscard]] Schedule one_cycle_momentum(const OneCycle& cycle);
// Returns the first step after the end of each phase, before `steps`.
[[nodiscard]] std::vector<int64_t> one_cycle_boundaries(const OneCycle& cycle);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
