#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/optim/schedules/schedule_checks.h"

namespace trainyard::optim {
namespace {

using schedule_checks::refuse;
using schedule_checks::require_rate;
using schedule_checks::require_steps;

// From 1 at 0 to 0 at 1.
double half_cosine(double done) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

// A period of a cosine with restarts.
struct Period {
  int64_t index = 0;
  double begin = 0, steps = 0;
};

Period period_of_index(const CosineRestarts& restarts, int64_t index) {
  const double first = static_cast<double>(restarts.period), factor = restarts.period_factor;
  const double length = std::pow(factor, static_cast<double>(index));
  const double begin = factor == 1 ? first * static_cast<double>(index) : first * (length - 1) / (factor - 1);
  return {.index = index, .begin = begin, .steps = first * length};
}

Period period_of_step(const CosineRestarts& restarts, int64_t step) {
  if (restarts.period_factor == 1) return period_of_index(restarts, step / restarts.period);
  const double first = static_cast<double>(restarts.period), factor = restarts.period_factor;
  const double periods = std::log1p((factor - 1) * static_cast<double>(step) / first) / std::log(factor);
  const auto estimate = static_cast<int64_t>(periods);
  // The logarithm may fall on the wrong side of a restart.
  Period period = period_of_index(restarts, std::max<int64_t>(estimate - 1, 0));
  while (static_cast<double>(step) >= period.begin + period.steps) {
    period = period_of_index(restarts, period.index + 1);
  }
  return period;
}

void require_usable(const CosineRestarts& restarts) {
  require_rate(restarts.rate, "the learning rate");
  require_rate(restarts.minimum, "the minimum of the learning rate");
  require_steps(restarts.period, "steps to the first restart");
  if (!(restarts.period_factor >= 1) || !std::isfinite(restarts.period_factor)) {
    refuse("the factor of a restart's period is not usable", "a finite number, at least 1",
           fmt::format("{}", restarts.period_factor));
  }
  if (!(restarts.rate_factor >= 0 && restarts.rate_factor <= 1)) {
    refuse("the factor of a restart's rate is not usable", "one in [0, 1]", fmt::format("{}", restarts.rate_factor));
  }
}

void require_usable(const OneCycle& cycle) {
  require_rate(cycle.rate, "the highest learning rate of a cycle");
  require_steps(cycle.steps, "the steps of a cycle");
  if (!(cycle.rise > 0 && cycle.rise < 1) || (cycle.three_phases && cycle.rise > 0.5)) {
    refuse("the rising part of a cycle is not usable",
           cycle.three_phases ? "more than 0 and at most 0.5, with three phases" : "more than 0 and less than 1",
           fmt::format("{}", cycle.rise));
  }
  for (const double divisor : {cycle.start_divisor, cycle.end_divisor}) {
    if (std::isfinite(divisor) && divisor > 0) continue;
    refuse("a divisor of a cycle's learning rate is not usable", "a finite number above 0", fmt::format("{}", divisor));
  }
  if (!(cycle.least_momentum >= 0 && cycle.least_momentum <= cycle.most_momentum && cycle.most_momentum <= 1)) {
    refuse("the momenta of a cycle are not usable", "0 <= least <= most <= 1",
           fmt::format("{} and {}", cycle.least_momentum, cycle.most_momentum));
  }
}

// A part of a cycle: values at its first and last step.
struct Phase {
  double last = 0;  // step, which may lie between two
  double from = 0, to = 0;
};

// The phases of a cycle; values are those at its start, at its top, and at its end.
std::vector<Phase> phases_of(const OneCycle& cycle, double start, double top, double end) {
  const double steps = static_cast<double>(cycle.steps), rise = cycle.rise * steps;
  if (cycle.three_phases) return {{rise - 1, start, top}, {2 * rise - 2, top, start}, {steps - 1, start, end}};
  return {{rise - 1, start, top}, {steps - 1, top, end}};
}

Schedule cycle_of(std::vector<Phase> phases, OneCycle::Shape shape) {
  return [phases = std::move(phases), shape](int64_t step) {
    const double now = static_cast<double>(step);
    size_t phase = 0;
    while (phase + 1 < phases.size() && now > phases[phase].last) ++phase;
    const double first = phase == 0 ? 0.0 : phases[phase - 1].last;
    const auto [last, from, to] = phases[phase];
    const double done = last > first ? std::min((now - first) / (last - first), 1.0) : 1.0;
    if (shape == OneCycle::Shape::kLinear) return (to - from) * done + from;
    return to + (from - to) * half_cosine(done);
  };
}

}  // namespace

LearningRate exponential(double rate, int64_t decay_steps, double factor, double minimum) {
  require_rate(rate, "the learning rate");
  require_rate(factor, "the learning rate's decay factor");
  require_rate(minimum, "the minimum of the learning rate");
  require_steps(decay_steps, "steps between two decays");
  return [=](int64_t step) {
    return std::max(rate * std::pow(factor, static_cast<double>(step) / static_cast<double>(decay_steps)), minimum);
  };
}

LearningRate exponential_staircase(double rate, int64_t decay_steps, double factor, double minimum) {
  LearningRate decay = exponential(rate, decay_steps, factor, minimum);
  return [=](int64_t step) { return decay(step / decay_steps * decay_steps); };
}

LearningRate polynomial(const PolynomialDecay& decay) {
  require_rate(decay.rate, "the learning rate");
  require_rate(decay.end, "the last learning rate of a polynomial decay");
  require_rate(decay.power, "the power of a polynomial decay");
  require_steps(decay.steps, "the steps of a polynomial decay");
  return [decay](int64_t step) {
    const double first = static_cast<double>(decay.steps), now = static_cast<double>(step);
    const double cycles = decay.cycle ? std::max(std::ceil(now / first), 1.0) : 1.0;
    const double done = std::min(now / (first * cycles), 1.0);
    return (decay.rate - decay.end) * std::pow(1.0 - done, decay.power) + decay.end;
  };
}

LearningRate cosine(double rate, int64_t total_steps, int64_t begin, double minimum) {
  require_rate(rate, "the learning rate");
  require_rate(minimum, "the minimum of the learning rate");
  if (begin < 0 || begin >= total_steps) {
    refuse("the cosine's first step is not usable", fmt::format("one in [0, {})", total_steps), std::to_string(begin));
  }
  return [=](int64_t step) {
    const double done = static_cast<double>(step - begin) / static_cast<double>(total_steps - begin);
    return minimum + (rate - minimum) * half_cosine(std::clamp(done, 0.0, 1.0));
  };
}

LearningRate cosine_restarts(const CosineRestarts& restarts) {
  require_usable(restarts);
  return [restarts](int64_t step) {
    const Period period = period_of_step(restarts, step);
    const double height =
        (restarts.rate - restarts.minimum) * std::pow(restarts.rate_factor, static_cast<double>(period.index));
    return restarts.minimum + height * half_cosine((static_cast<double>(step) - period.begin) / period.steps);
  };
}

std::vector<int64_t> restart_steps(const CosineRestarts& restarts, int64_t end, size_t most) {
  require_usable(restarts);
  std::vector<int64_t> steps;
  while (steps.size() < most) {
    const double begin = std::ceil(period_of_index(restarts, std::ssize(steps) + 1).begin);
    if (begin >= static_cast<double>(end)) break;
    steps.push_back(static_cast<int64_t>(begin));
  }
  return steps;
}

LearningRate one_cycle(const OneCycle& cycle) {
  require_usable(cycle);
  const double start = cycle.rate / cycle.start_divisor;
  return cycle_of(phases_of(cycle, start, cycle.rate, start / cycle.end_divisor), cycle.shape);
}

Schedule one_cycle_momentum(const OneCycle& cycle) {
  require_usable(cycle);
  return cycle_of(phases_of(cycle, cycle.most_momentum, cycle.least_momentum, cycle.most_momentum), cycle.shape);
}

std::vector<int64_t> one_cycle_boundaries(const OneCycle& cycle) {
  require_usable(cycle);
  std::vector<int64_t> steps;
  for (const Phase& phase : phases_of(cycle, 0, 1, 0)) {
    const auto next = static_cast<int64_t>(std::floor(phase.last)) + 1;
    if (next > 0 && next < cycle.steps) steps.push_back(next);
  }
  return steps;
}

}  // namespace trainyard::optim
