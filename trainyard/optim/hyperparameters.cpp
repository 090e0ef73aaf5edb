#include "trainyard/optim/hyperparameters.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

const Hyperparameters::Range Hyperparameters::kAnyFinite = {std::numeric_limits<double>::lowest(),
                                                            std::numeric_limits<double>::max()};

void Hyperparameters::check(const std::string& name, const Range& range, double value) {
  if (std::isfinite(value) && value >= range.least && value <= range.most) return;
  std::string expected = "a finite number";
  if (range.least > kAnyFinite.least) expected += fmt::format(", at least {}", range.least);
  if (range.most < kAnyFinite.most) expected += fmt::format(", at most {}", range.most);
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("the hyperparameter '{}' cannot have this value", name),
               .expected = expected,
               .actual = fmt::format("{}", value)});
}

void Hyperparameters::add(const std::string& name, LearningRate schedule, Range range) {
  if (name.empty() || name.find_first_of(":\n\r") != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a hyperparameter cannot have this name",
                                              .expected = "characters other than ':' and line breaks",
                                              .actual = fmt::format("'{}'", name)});
  }
  if (has(name)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("there is a hyperparameter '{}' already", name)});
  }
  const double first = schedule(next_step_);
  check(name, range, first);
  entries_.emplace(name, Entry{.schedule = std::move(schedule), .range = range, .value = first});
}

void Hyperparameters::add(const std::string& name, double value, Range range) {
  add(
      name, [value](int64_t) { return value; }, range);
}

std::vector<std::string> Hyperparameters::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const Hyperparameters::Entry& Hyperparameters::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw core::unknown_name("hyperparameter", name, names());
  return found->second;
}

double Hyperparameters::get(std::string_view name) const {
  return entry(name).value;
}

void Hyperparameters::set(std::string_view name, double value) {
  check(std::string(name), entry(name).range, value);
  Entry& own = entries_.find(name)->second;
  own.value = value;
  own.by_hand = true;
}

void Hyperparameters::release(std::string_view name) {
  entry(name);
  Entry& own = entries_.find(name)->second;
  own.by_hand = false;
  own.value = own.schedule(next_step_);
}

void Hyperparameters::begin_step(int64_t step) {
  next_step_ = step;
  for (auto& [name, entry] : entries_) {
    if (entry.by_hand) continue;
    const double value = entry.schedule(step);
    check(name, entry.range, value);
    entry.value = value;
  }
}

void Hyperparameters::save(core::StateWriter& writer) const {
  for (const auto& [name, entry] : entries_) {
    if (entry.by_hand) writer.real(name, entry.value);
  }
}

void Hyperparameters::load(const core::StateReader& reader) {
  for (auto& [name, entry] : entries_) entry.by_hand = false;
  for (const std::string& name : reader.names()) {
    if (has(name)) {
      set(name, reader.real(name));
    } else {
      core::log::warning("the checkpoint sets a hyperparameter '{}', which this training does not have", name);
    }
  }
}

}  // namespace trainyard::optim
