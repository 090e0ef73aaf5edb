#include "trainyard/train/callbacks/hyperparameter_setters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr uint64_t kMostBytes = 1 << 20;  // of a file that a person writes

std::string_view without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Returns the value of the last line of that name; throws kCorruptData where there is none, or it is no number.
double value_in(const std::string& content, const std::string& name) {
  std::optional<std::string> last;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || without_blanks(std::string_view(line).substr(0, colon)) != name) continue;
    last = without_blanks(std::string_view(line).substr(colon + 1));
  }
  if (!last) throw Error(ErrorCode::kCorruptData, fmt::format("there is no line '{}: VALUE'", name));
  double value = 0;
  const auto [end, error] = std::from_chars(last->data(), last->data() + last->size(), value);
  if (error != std::errc() || end != last->data() + last->size() || !std::isfinite(value)) {
    throw Error(ErrorCode::kCorruptData,
                {.problem = fmt::format("the value of {} is no number", name), .actual = *last});
  }
  return value;
}

// Returns how many epochs are done when a training begins; the last one may be that of the checkpoint.
int64_t epochs_before(const LoopOptions& loop) {
  return loop.starting_step == loop.steps_per_epoch ? loop.starting_epoch : loop.starting_epoch - 1;
}

}  // namespace

HyperParamSetter::HyperParamSetter(std::string kind, std::string parameter)
    : kind_(std::move(kind)), parameter_(std::move(parameter)) {}

void HyperParamSetter::setup(Trainer& trainer) {
  trainer.hyperparameters().get(parameter_);  // throws
}

void HyperParamSetter::before_train(Trainer& trainer) {
  if (trainer.global_step() == 0) set(trainer, epochs_before(trainer.loop()));
}

void HyperParamSetter::trigger(Trainer& trainer) {
  set(trainer, trainer.epoch());
}

void HyperParamSetter::set(Trainer& trainer, int64_t epochs_done) {
  if (const auto value = value_to_set(trainer, epochs_done)) trainer.hyperparameters().set(parameter_, *value);
}

ScheduledHyperParamSetter::ScheduledHyperParamSetter(const std::string& parameter, std::vector<Entry> schedule,
                                                     ScheduleUnit unit, ScheduleInterpolation interpolation)
    : HyperParamSetter("scheduled", parameter),
      schedule_(std::move(schedule)),
      unit_(unit),
      interpolation_(interpolation) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the schedule of {} {}", parameter, problem));
  };
  if (schedule_.empty()) refuse("has no entries");
  if (schedule_.front().point < 0) refuse("begins before the training");
  for (size_t i = 1; i < schedule_.size(); ++i) {
    if (schedule_[i].point <= schedule_[i - 1].point) refuse("has points that do not ascend");
  }
}

std::optional<double> ScheduledHyperParamSetter::due_at(int64_t point) const {
  const auto next = std::find_if(schedule_.begin(), schedule_.end(), [&](const Entry& e) { return e.point >= point; });
  if (next == schedule_.end()) return std::nullopt;
  if (next->point == point) return next->value;
  if (next == schedule_.begin() || interpolation_ == ScheduleInterpolation::kNone) return std::nullopt;
  const Entry& before = *(next - 1);
  const double part = static_cast<double>(point - before.point) / static_cast<double>(next->point - before.point);
  return before.value + part * (next->value - before.value);
}

std::optional<double> ScheduledHyperParamSetter::value_to_set(Trainer& trainer, int64_t epochs_done) {
  return due_at(unit_ == ScheduleUnit::kSteps ? trainer.global_step() : epochs_done);
}

void ScheduledHyperParamSetter::before_train(Trainer& trainer) {
  const LoopOptions& loop = trainer.loop();
  const bool by_steps = unit_ == ScheduleUnit::kSteps;
  const int64_t done = by_steps ? trainer.global_step() : epochs_before(loop);
  const std::optional<double> due = due_at(done);
  // A checkpoint may have been saved before the value was set. In the middle of an epoch that is not so, and the value
  // may have been changed since.
  const bool at_point = by_steps || loop.starting_step == 0 || loop.starting_step == loop.steps_per_epoch;
  if (due && at_point) return trainer.hyperparameters().set(parameter(), *due);
  const auto next = std::find_if(schedule_.begin(), schedule_.end(), [&](const Entry& e) { return e.point > done; });
  if (next == schedule_.begin()) return;
  const double expected = due.value_or((next - 1)->value);
  const double actual = trainer.hyperparameters().get(parameter());
  if (std::abs(actual - expected) <= 1e-8 + 1e-5 * std::abs(expected)) return;
  core::log::warning("by its schedule {} is {} at this point, and it is {}; check how it begins", parameter(), expected,
                     actual);
}

void ScheduledHyperParamSetter::after_step(Trainer& trainer, const StepView&) {
  if (unit_ == ScheduleUnit::kSteps) set(trainer, 0);
}

void ScheduledHyperParamSetter::trigger(Trainer& trainer) {
  if (unit_ == ScheduleUnit::kEpochs) HyperParamSetter::trigger(trainer);
}

HyperParamSetterWithFunc::HyperParamSetterWithFunc(const std::string& parameter, Function function)
    : HyperParamSetter("function", parameter), function_(std::move(function)) {}

std::optional<double> HyperParamSetterWithFunc::value_to_set(Trainer& trainer, int64_t epochs_done) {
  return function_(epochs_done, trainer.hyperparameters().get(parameter()));
}

HumanHyperParamSetter::HumanHyperParamSetter(const std::string& parameter, std::string path, core::FileSystem& files)
    : HyperParamSetter("human", parameter), path_(std::move(path)), files_(&files) {}

std::optional<double> HumanHyperParamSetter::value_to_set(Trainer& trainer, int64_t) {
  optim::Hyperparameters& numbers = trainer.hyperparameters();
  try {
    if (!files_->exists(path_)) {
      if (!seen_) return std::nullopt;
      throw Error(ErrorCode::kNotFound, "the file is gone");
    }
    seen_ = true;
    const double value = value_in(files_->read_file(path_, kMostBytes), parameter());
    if (value != numbers.get(parameter())) {
      numbers.set(parameter(), value);
      core::log::info("{}: {} is {} from now on", path_, parameter(), value);
    }
    warned_of_.clear();
  } catch (const Error& error) {
    if (warned_of_ != error.what()) {
      core::log::warning("{}: {} stays {}: {}", path_, parameter(), numbers.get(parameter()), error.what());
    }
    warned_of_ = error.what();
  }
  return std::nullopt;  // it is set
}

StatMonitorParamSetter::StatMonitorParamSetter(const std::string& parameter, Options options)
    : HyperParamSetter("statistic", parameter), options_(std::move(options)) {
  if (options_.last_k >= 1 && options_.function && !options_.statistic.empty() && std::isfinite(options_.threshold)) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, {.problem = "a statistic cannot set " + parameter + " so",
                                            .expected = "a name, a function, a finite threshold, last_k of at least 1",
                                            .actual = fmt::format("'{}', threshold {}, last_k {}", options_.statistic,
                                                                  options_.threshold, options_.last_k)});
}

void StatMonitorParamSetter::setup(Trainer& trainer) {
  HyperParamSetter::setup(trainer);
  trainer.monitors().keep(options_.statistic);
}

std::optional<double> StatMonitorParamSetter::value_to_set(Trainer& trainer, int64_t epochs_done) {
  const MonitorSet::History& history = trainer.monitors().history(options_.statistic);
  if (history.empty() || (!seen_.empty() && seen_.back() == history.back().first)) {
    core::log::warning("{} stays as it is: the monitors have no new value of '{}'", parameter(), options_.statistic);
    return std::nullopt;
  }
  seen_.push_back(history.back().first);
  const auto last_k = static_cast<size_t>(options_.last_k);
  if (seen_.size() > last_k + 1) seen_.erase(seen_.begin());
  if (seen_.size() < last_k + 1 || epochs_done - last_change_ < options_.last_k) return std::nullopt;
  const double sign = options_.better == Better::kLower ? 1 : -1;
  std::optional<double> first;
  for (const auto& [step, value] : history) {
    if (!std::binary_search(seen_.begin(), seen_.end(), step)) continue;
    if (!first) first = value;
    if (sign * value < sign * *first - options_.threshold) return std::nullopt;
  }
  last_change_ = epochs_done;
  return options_.function(trainer.hyperparameters().get(parameter()));
}

void StatMonitorParamSetter::save(core::StateWriter& writer) const {
  writer.integer("last_change", last_change_);
  writer.tensor("seen", at::tensor(seen_, at::kLong));
}

void StatMonitorParamSetter::load(const core::StateReader& reader) {
  last_change_ = reader.integer("last_change");
  const at::Tensor seen = reader.tensor("seen");
  seen_.assign(seen.const_data_ptr<int64_t>(), seen.const_data_ptr<int64_t>() + seen.numel());
}

}  // namespace trainyard::train
