#include "trainyard/optim/schedules/learning_rate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/schedules/schedule_checks.h"

namespace trainyard::optim {
namespace {

using core::Error;
using core::ErrorCode;

using schedule_checks::refuse;
using schedule_checks::require_rate;

void require_batches_per_epoch(double batches) {
  if (!std::isfinite(batches) || batches <= 0) {
    refuse("batches per epoch are not usable", "a number above 0", fmt::format("{}", batches));
  }
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1)) {
    parts.push_back(text.substr(0, end));
  }
  parts.push_back(text);
  return parts;
}

// One component of a schedule, which `part` counts from 1.
std::string place_of(size_t part) {
  return fmt::format("component {} of --piecewise_learning_rate_schedule", part);
}

template <typename Number>
Number parse_number(std::string_view text, std::string_view what, size_t part) {
  std::string_view digits = text;
  while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
  while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
  Number number{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("Invalid {}: {}", what, text.empty() ? "''" : text),
                 .where = place_of(part),
                 .expected = std::is_integral_v<Number> ? "a whole number of epochs" : "a learning rate",
                 .actual = digits.empty() ? "nothing" : ""});
  }
  return number;
}

}  // namespace

int64_t whole_steps(double batches_per_epoch, double epochs) {
  constexpr double kMost = 4e18;
  return static_cast<int64_t>(std::clamp(batches_per_epoch * epochs, -kMost, kMost));
}

LearningRate constant(double rate) {
  require_rate(rate, "the learning rate");
  return [rate](int64_t) { return rate; };
}

LearningRate piecewise(std::vector<int64_t> boundaries, std::vector<double> rates) {
  if (rates.size() != boundaries.size() + 1) {
    refuse("a piecewise learning rate needs one rate more than boundaries", std::to_string(boundaries.size() + 1),
           std::to_string(rates.size()));
  }
  if (!std::is_sorted(boundaries.begin(), boundaries.end())) {
    refuse("the boundaries of a piecewise learning rate must ascend", "",
           fmt::format("{}", fmt::join(boundaries, ", ")));
  }
  for (const double rate : rates) require_rate(rate, "a piece of the learning rate");
  return [boundaries = std::move(boundaries), rates = std::move(rates)](int64_t step) {
    const auto piece = std::lower_bound(boundaries.begin(), boundaries.end(), step);
    return rates[static_cast<size_t>(piece - boundaries.begin())];
  };
}

PiecewiseEpochs parse_piecewise(std::string_view schedule) {
  const std::vector<std::string_view> parts = split(schedule, ';');
  if (parts.size() % 2 == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--piecewise_learning_rate_schedule must have an odd number of components",
                 .expected = "RATE;EPOCH;RATE;...;RATE",
                 .actual = fmt::format("{}, of {} components", schedule, parts.size())});
  }
  PiecewiseEpochs read;
  std::vector<double>& rates = read.rates;
  int64_t last_epoch = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % 2 == 0) {
      rates.push_back(parse_number<double>(parts[i], "learning rate", i + 1));
      if (!std::isfinite(rates.back()) || rates.back() < 0) {
        throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("Invalid learning rate: {}", parts[i]),
                                                  .where = place_of(i + 1),
                                                  .expected = "a finite number, at least 0"});
      }
    } else {
      const auto epoch = parse_number<int64_t>(parts[i], "epoch", i + 1);
      if (epoch < last_epoch) {
        throw Error(
            ErrorCode::kInvalidArgument,
            {.problem = "the epochs of a piecewise learning rate must ascend",
             .where = place_of(i + 1),
             .expected = i == 1 ? "an epoch of at least 0" : fmt::format("at least {}, the one before", last_epoch),
             .actual = std::to_string(epoch)});
      }
      last_epoch = epoch;
      read.boundary_epochs.push_back(epoch);
    }
  }
  return read;
}

LearningRate piecewise(const PiecewiseEpochs& schedule, double batches_per_epoch) {
  require_batches_per_epoch(batches_per_epoch);
  std::vector<int64_t> boundaries;
  for (const int64_t epoch : schedule.boundary_epochs) {
    boundaries.push_back(whole_steps(batches_per_epoch, static_cast<double>(epoch)) - 1);
  }
  return piecewise(std::move(boundaries), schedule.rates);
}

LearningRate by_epochs(const EpochSchedule& schedule, double batches_per_epoch) {
  require_batches_per_epoch(batches_per_epoch);
  auto step_of = [=](double epoch) { return whole_steps(batches_per_epoch, epoch); };
  std::vector<int64_t> boundaries;
  std::vector<double> rates;
  for (const double epoch : schedule.boundary_epochs) boundaries.push_back(step_of(epoch));
  for (const double factor : schedule.factors) rates.push_back(schedule.rate * factor);
  LearningRate rate = boundaries.empty() && rates.empty() ? constant(schedule.rate)
                                                          : piecewise(std::move(boundaries), std::move(rates));
  return with_warmup(std::move(rate), schedule.rate, step_of(schedule.warmup_epochs));
}

double scaled_rate(double base_rate, int64_t base_batch_size, int64_t global_batch_size, int summed_replicas,
                   BatchScaling scaling) {
  require_rate(base_rate, "the base learning rate");
  if (base_batch_size < 1 || global_batch_size < 1 || summed_replicas < 1) {
    refuse("the batch of a learning rate is not usable", "batches and a count of replicas of at least 1",
           fmt::format("{} images for {} over {} replicas", global_batch_size, base_batch_size, summed_replicas));
  }
  if (scaling == BatchScaling::kSquareRoot) {
    const double ratio = static_cast<double>(global_batch_size) / static_cast<double>(base_batch_size);
    return base_rate * std::sqrt(ratio) / summed_replicas;
  }
  return base_rate * static_cast<double>(global_batch_size) / static_cast<double>(base_batch_size) / summed_replicas;
}

LearningRate with_warmup(LearningRate schedule, double initial, int64_t warmup_steps, double start) {
  require_rate(initial, "the learning rate after warm-up");
  require_rate(start, "the learning rate that a warm-up starts with");
  if (warmup_steps <= 0) return schedule;
  return [schedule = std::move(schedule), initial, warmup_steps, start](int64_t step) {
    if (step >= warmup_steps) return schedule(step);
    return (initial - start) * static_cast<double>(step) / static_cast<double>(warmup_steps) + start;
  };
}

LearningRate times_warmup(LearningRate schedule, int64_t warmup_steps, double start_factor) {
  if (!(start_factor >= 0 && start_factor <= 1)) {
    refuse("the factor that a warm-up starts with is not usable", "one in [0, 1]", fmt::format("{}", start_factor));
  }
  if (warmup_steps <= 0) return schedule;
  return [schedule = std::move(schedule), warmup_steps, start_factor](int64_t step) {
    if (step >= warmup_steps) return schedule(step);
    const double done = static_cast<double>(step) / static_cast<double>(warmup_steps);
    return schedule(step) * (start_factor + (1 - start_factor) * done);
  };
}

LearningRate delayed(LearningRate schedule, int64_t steps) {
  if (steps <= 0) return schedule;
  return [schedule = std::move(schedule), steps](int64_t step) { return schedule(std::max<int64_t>(step - steps, 0)); };
}

}  // namespace trainyard::optim
