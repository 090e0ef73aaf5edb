// Decaying learning rates, as functions of the step like those of learning_rate.h. After its last step each keeps its
// last value.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/schedules/learning_rate.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

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
