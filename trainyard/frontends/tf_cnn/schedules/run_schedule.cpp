#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends {
namespace {

constexpr size_t kMostBoundaries = 20;

// Adds `step`, which is a boundary where it lies within the training.
void add_boundary(RunSchedule& schedule, int64_t step, const ScheduleFacts& facts) {
  if (step > 0 && step < facts.steps && schedule.boundaries.size() < kMostBoundaries) {
    schedule.boundaries.push_back(step);
  }
}

double scaled_by_batch(double rate, const LearningRateOptions& options, const ScheduleFacts& facts) {
  if (!options.scaling) return rate;
  return optim::scaled_rate(rate, options.scaling_batch_size, facts.examples_per_step, facts.summed_replicas,
                            *options.scaling);
}

// The model's own rate: scaled with the batch where it is for a batch, less where gradients are summed.
RunSchedule model_schedule(const LearningRateOptions& options, const ScheduleFacts& facts) {
  const models::DefaultSchedule& own = facts.model;
  double rate = own.takes_resnet_base_lr ? options.resnet_base_lr.value_or(own.learning_rate) : own.learning_rate;
  if (own.batch_size > 0) {
    const int64_t examples =
        facts.rated_examples_per_step > 0 ? facts.rated_examples_per_step : facts.examples_per_step;
    rate = optim::scaled_rate(rate, own.batch_size, examples, facts.summed_replicas);
  }
  const double per_epoch = own.epoch_examples > 0
                               ? static_cast<double>(own.epoch_examples) / static_cast<double>(facts.examples_per_step)
                               : facts.steps_per_epoch();
  RunSchedule schedule{.name = "the model's own", .warmup_steps = optim::whole_steps(per_epoch, own.warmup_epochs)};
  if (own.boundary_steps.empty()) {
    schedule.learning_rate = optim::by_epochs({.rate = rate,
                                               .boundary_epochs = own.boundary_epochs,
                                               .factors = own.factors,
                                               .warmup_epochs = own.warmup_epochs},
                                              per_epoch);
    for (const double epoch : own.boundary_epochs) {
      add_boundary(schedule, optim::whole_steps(per_epoch, epoch) + 1, facts);
    }
    return schedule;
  }
  std::vector<int64_t> boundaries;
  std::vector<double> rates;
  for (const int64_t step : own.boundary_steps) {
    boundaries.push_back(step * own.batch_size / facts.examples_per_step);
    add_boundary(schedule, boundaries.back() + 1, facts);
  }
  for (const double factor : own.factors) rates.push_back(rate * factor);
  schedule.learning_rate =
      optim::with_warmup(optim::piecewise(std::move(boundaries), std::move(rates)), rate, schedule.warmup_steps);
  return schedule;
}

// A schedule without its warm-up. `rate` is that of its first step, or of a cycle's top.
RunSchedule piecewise_schedule(const LearningRateOptions& options, const ScheduleFacts& facts) {
  optim::PiecewiseEpochs scaled = *options.piecewise;
  for (double& rate : scaled.rates) rate = scaled_by_batch(rate, options, facts);
  RunSchedule schedule{.name = "piecewise", .learning_rate = optim::piecewise(scaled, facts.steps_per_epoch())};
  for (const int64_t epoch : scaled.boundary_epochs) {
    add_boundary(schedule, optim::whole_steps(facts.steps_per_epoch(), static_cast<double>(epoch)), facts);
  }
  return schedule;
}

RunSchedule decaying_schedule(const std::string& name, double rate, const LearningRateOptions& options,
                              const ScheduleFacts& facts) {
  const int64_t period = optim::whole_steps(facts.steps_per_epoch(), options.num_epochs_per_decay);
  RunSchedule schedule{.name = name};
  if (name == "exponential") {
    schedule.learning_rate = optim::exponential(rate, period, options.decay_factor, options.minimum);
    return schedule;
  }
  schedule.learning_rate = optim::exponential_staircase(rate, period, options.decay_factor, options.minimum);
  for (int64_t step = period; step < facts.steps && schedule.boundaries.size() < kMostBoundaries; step += period) {
    add_boundary(schedule, step, facts);
  }
  return schedule;
}

RunSchedule polynomial_schedule(double rate, int64_t begin, int64_t end, const LearningRateOptions& options,
                                const ScheduleFacts& facts) {
  const bool shorter = options.num_epochs_per_decay > 0;
  const int64_t steps =
      shorter ? optim::whole_steps(facts.steps_per_epoch(), options.num_epochs_per_decay) : end - begin;
  RunSchedule schedule{.name = "polynomial",
                       .learning_rate = optim::delayed(optim::polynomial({.rate = rate,
                                                                          .steps = steps,
                                                                          .end = options.minimum,
                                                                          .power = options.polynomial_power,
                                                                          .cycle = options.polynomial_cycle}),
                                                       begin)};
  if (!shorter) return schedule;
  const size_t most = options.polynomial_cycle ? kMostBoundaries : 1;
  // In the step behind a multiple the rate has risen.
  for (int64_t step = begin + steps; step < facts.steps && schedule.boundaries.size() < most; step += steps) {
    add_boundary(schedule, step + (options.polynomial_cycle ? 1 : 0), facts);
  }
  return schedule;
}

RunSchedule restarting_schedule(double rate, int64_t begin, const LearningRateOptions& options,
                                const ScheduleFacts& facts) {
  const optim::CosineRestarts restarts{
      .rate = rate,
      .period = optim::whole_steps(facts.steps_per_epoch(), options.num_epochs_per_decay),
      .period_factor = options.restart_period_factor,
      .rate_factor = options.decay_factor > 0 ? options.decay_factor : 1.0,
      .minimum = options.minimum};
  RunSchedule schedule{.name = "cosine_restarts",
                       .learning_rate = optim::delayed(optim::cosine_restarts(restarts), begin)};
  for (const int64_t step : optim::restart_steps(restarts, facts.steps - begin, kMostBoundaries)) {
    add_boundary(schedule, begin + step, facts);
  }
  return schedule;
}

RunSchedule one_cycle_schedule(double rate, const LearningRateOptions& options, const ScheduleFacts& facts) {
  optim::OneCycle cycle = options.one_cycle;
  cycle.rate = rate;
  cycle.steps = facts.steps;
  RunSchedule schedule{.name = "one_cycle", .learning_rate = optim::one_cycle(cycle)};
  if (options.cycle_momentum) schedule.momentum = optim::one_cycle_momentum(cycle);
  schedule.boundaries = optim::one_cycle_boundaries(cycle);
  return schedule;
}

// Options that a program fills in by hand have not met the checks of the flags.
void require_known_schedule(const LearningRateOptions& options) {
  constexpr std::array kWithRate = {"constant", "staircase",       "exponential", "polynomial",
                                    "cosine",   "cosine_restarts", "one_cycle"};
  const bool known = std::find(kWithRate.begin(), kWithRate.end(), options.schedule) != kWithRate.end();
  const auto refuse_if = [&](bool condition, const char* expected) {
    if (!condition) return;
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the learning rate's schedule is incomplete", .expected = expected, .actual = options.schedule});
  };
  refuse_if(!known && options.schedule != "auto" && options.schedule != "piecewise",
            "auto, constant, piecewise, staircase, exponential, polynomial, cosine, cosine_restarts or one_cycle");
  refuse_if(known && !options.init_learning_rate, "init_learning_rate with it");
  refuse_if(options.schedule == "piecewise" && !options.piecewise, "rates and epochs with it");
  refuse_if(options.changes_by_epoch &&
                ((!options.init_learning_rate && !options.piecewise) || options.schedule == "one_cycle"),
            "a rate of its own with changes_by_epoch, and not one_cycle");
  refuse_if(options.schedule == "staircase" && !(options.num_epochs_per_decay > 0), "num_epochs_per_decay with it");
}

// Returns the step at which a schedule over the run has come to its end: the first of the cooldown. Throws where the
// warm-up leaves nothing before it.
int64_t end_behind(int64_t begin, const LearningRateOptions& options, const ScheduleFacts& facts) {
  const int64_t end = facts.steps - optim::whole_steps(facts.steps_per_epoch(), options.cooldown_epochs);
  if (begin < end) return end;
  if (begin < facts.steps) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the cooldown of the learning rate leaves no step of the schedule",
                       .where = "--num_learning_rate_cooldown_epochs",
                       .expected = fmt::format("less than {:.4g} epochs",
                                               static_cast<double>(facts.steps - begin) / facts.steps_per_epoch()),
                       .actual = fmt::format("{:.4g}", options.cooldown_epochs)});
  }
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "the warm-up of the learning rate is as long as the training",
       .where = "--num_learning_rate_warmup_epochs",
       .expected = fmt::format("less than {:.4g} epochs", static_cast<double>(facts.steps) / facts.steps_per_epoch()),
       .actual = fmt::format("{:.4g}", options.warmup_epochs)});
}

// Returns the schedule of a rate that changes by the epoch: that of a training whose steps are epochs, held for the
// steps of each epoch. So it has the numbers of a scheduler that is stepped once an epoch, to the last bit, also where
// an epoch is no whole number of steps.
RunSchedule schedule_by_epoch(LearningRateOptions options, const ScheduleFacts& facts) {
  const int64_t examples = facts.train_examples, batch = facts.examples_per_step;
  options.changes_by_epoch = false;
  if (options.init_learning_rate)
    options.init_learning_rate = scaled_by_batch(*options.init_learning_rate, options, facts);
  if (options.piecewise) {
    for (double& rate : options.piecewise->rates) rate = scaled_by_batch(rate, options, facts);
  }
  options.scaling = std::nullopt;
  const auto first_step = [=](int64_t epoch) { return (epoch * examples + batch - 1) / batch; };
  // The epochs that a step begins in: the last step may reach into one more, which a scheduler does not know of.
  const int64_t epochs = (facts.steps - 1) * batch / examples + 1;
  RunSchedule schedule = make_run_schedule(options, {.train_examples = 1, .examples_per_step = 1, .steps = epochs});
  schedule.name += " by the epoch";
  schedule.warmup_steps = first_step(schedule.warmup_steps);
  for (int64_t& boundary : schedule.boundaries) boundary = first_step(boundary);
  // Epochs may be shorter than a step.
  auto& boundaries = schedule.boundaries;
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  std::erase_if(boundaries, [&](int64_t step) { return step >= facts.steps; });
  schedule.learning_rate = [by_epoch = std::move(schedule.learning_rate), examples, batch](int64_t step) {
    return by_epoch(step * batch / examples);
  };
  return schedule;
}

}  // namespace

RunSchedule make_run_schedule(const LearningRateOptions& options, const ScheduleFacts& facts) {
  require_known_schedule(options);
  if (options.changes_by_epoch) return schedule_by_epoch(options, facts);
  if (!options.piecewise && !options.init_learning_rate) return model_schedule(options, facts);
  const double rate = scaled_by_batch(options.init_learning_rate.value_or(0), options, facts);
  if (options.schedule == "one_cycle") return one_cycle_schedule(rate, options, facts);

  const int64_t warmup = optim::whole_steps(facts.steps_per_epoch(), options.warmup_epochs);
  using Warmup = LearningRateOptions::Warmup;
  // The step at which the schedule begins: after a warm-up that replaces it.
  const int64_t begin = options.warmup == Warmup::kReplace ? warmup : 0;
  RunSchedule schedule;
  if (options.piecewise) {
    schedule = piecewise_schedule(options, facts);
  } else if (options.schedule == "cosine") {
    const int64_t end = end_behind(begin, options, facts);
    schedule = {.name = "cosine", .learning_rate = optim::cosine(rate, end, begin, options.minimum)};
    add_boundary(schedule, end, facts);
  } else if (options.schedule == "cosine_restarts") {
    schedule = restarting_schedule(rate, begin, options, facts);
  } else if (options.schedule == "polynomial") {
    const int64_t end = end_behind(begin, options, facts);
    schedule = polynomial_schedule(rate, begin, end, options, facts);
    add_boundary(schedule, end, facts);
  } else if (options.schedule == "exponential" || options.num_epochs_per_decay > 0) {
    schedule = decaying_schedule(options.schedule == "exponential" ? "exponential" : "staircase", rate, options, facts);
  } else {
    schedule = {.name = "constant", .learning_rate = optim::constant(rate)};
  }
  schedule.warmup_steps = warmup;
  if (options.warmup != Warmup::kMultiply) {
    // The first piece, even where an epoch of less than a step leaves no step to it.
    const double top = options.piecewise ? scaled_by_batch(options.piecewise->rates.front(), options, facts) : rate;
    schedule.learning_rate = optim::with_warmup(schedule.learning_rate, top, warmup, options.warmup_start);
  } else {
    const double initial = options.piecewise ? schedule.learning_rate(0) : rate;
    schedule.learning_rate =
        optim::times_warmup(schedule.learning_rate, warmup, initial > 0 ? options.warmup_start / initial : 0.0);
  }
  return schedule;
}

}  // namespace trainyard::frontends
