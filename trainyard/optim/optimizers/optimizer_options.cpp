#include "trainyard/optim/optimizers/optimizer_options.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

namespace {

void require_number(bool good, std::string_view what, std::string_view expected, double actual) {
  if (good) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not usable", what),
                                            .expected = std::string(expected),
                                            .actual = fmt::format("{}", actual)});
}

void check_number(const OptimizerNumber& number, double value) {
  switch (number.range) {
    case NumberRange::kUnit:
      return require_number(value >= 0 && value <= 1, number.name, "a number in [0, 1]", value);
    case NumberRange::kBelowOne:
      return require_number(value >= 0 && value < 1, number.name, "a number in [0, 1)", value);
    case NumberRange::kOpenUnit:
      return require_number(value > 0 && value < 1, number.name, "a number in (0, 1)", value);
    case NumberRange::kPositive:
      return require_number(std::isfinite(value) && value > 0, number.name, "a finite number above 0", value);
    case NumberRange::kSwitch:
      return require_number(value == 0 || value == 1, number.name, "0 or 1", value);
    case NumberRange::kCount:
      return require_number(value >= 1 && value <= 99 && value == std::floor(value), number.name,
                            "a whole number from 1 to 99", value);
    case NumberRange::kChoice:
      return require_number(
          value >= 0 && value < static_cast<double>(number.choices.size()) && value == std::floor(value), number.name,
          fmt::format("the index of one of {}", fmt::join(number.choices, ", ")), value);
  }
}

}  // namespace

OptimizerNumbers complete_numbers(const std::vector<OptimizerNumber>& declared, const OptimizerNumbers& given) {
  OptimizerNumbers numbers;
  std::vector<std::string> names;
  for (const OptimizerNumber& number : declared) {
    const auto found = given.find(number.name);
    const double value = found == given.end() ? number.default_value : found->second;
    check_number(number, value);
    numbers.emplace(number.name, value);
    names.push_back(number.name);
  }
  for (const auto& [name, value] : given) {
    if (!numbers.contains(name)) throw core::unknown_name("number of the optimizer", name, names);
  }
  return numbers;
}

void Lookahead::validate() const {
  require_number(steps >= 1, "the number of steps of Lookahead", "at least 1", static_cast<double>(steps));
  require_number(alpha > 0 && alpha <= 1, "alpha of Lookahead", "a number in (0, 1]", alpha);
  if (!final_alpha) return;
  require_number(*final_alpha > 0 && *final_alpha <= 1, "the last alpha of Lookahead", "a number in (0, 1]",
                 *final_alpha);
  require_number(updates >= 1, "the number of updates over which alpha of Lookahead changes", "at least 1",
                 static_cast<double>(updates));
}

double Lookahead::alpha_at(int64_t update) const {
  if (!final_alpha) return alpha;
  const double progress = std::min(1.0, static_cast<double>(update) / static_cast<double>(updates));
  return alpha + (*final_alpha - alpha) * progress * progress * progress;
}

void OptimizerOptions::validate() const {
  require_number(std::isfinite(weight_decay) && weight_decay >= 0, "weight decay", "a finite number, at least 0",
                 weight_decay);
  if (gradient_clip) require_number(*gradient_clip > 0, "gradient clip", "a number above 0", *gradient_clip);
  if (norm_clip) norm_clip->validate();
  if (lookahead) lookahead->validate();
  for (const ParameterGroup& group : groups) {
    require_number(std::isfinite(group.rate_factor) && group.rate_factor >= 0,
                   fmt::format("the rate factor of the group '{}'", group.pattern), "a finite number, at least 0",
                   group.rate_factor);
    if (!group.weight_decay) continue;
    require_number(std::isfinite(*group.weight_decay) && *group.weight_decay >= 0,
                   fmt::format("the weight decay of the group '{}'", group.pattern), "a finite number, at least 0",
                   *group.weight_decay);
  }
  require_number(layer_decay > 0 && layer_decay <= 1, "layer decay", "a number above 0 and at most 1", layer_decay);
  std::set<std::string> names = {"weight_decay"};
  for (const RegularizationTerm& term : regularization) {
    require_number(std::isfinite(term.coefficient) && term.coefficient >= 0,
                   fmt::format("the coefficient of the term '{}'", term.name), "a finite number, at least 0",
                   term.coefficient);
    if (!term.name.empty() && names.insert(term.name).second) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "terms of the loss need names of their own",
                                              .where = "the regularization of an optimizer",
                                              .actual = fmt::format("'{}' again", term.name)});
  }
}

}  // namespace trainyard::optim
