#include "trainyard/optim/optimizers/optimizer_options.h"

#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

void OptimizerOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, double actual) {
    if (good) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not usable", what),
                                              .expected = std::string(expected),
                                              .actual = fmt::format("{}", actual)});
  };
  require(momentum >= 0 && momentum <= 1, "momentum", "a number in [0, 1]", momentum);
  require(dampening >= 0 && dampening <= 1, "dampening", "a number in [0, 1]", dampening);
  require(mean_square_decay >= 0 && mean_square_decay <= 1, "mean_square_decay", "a number in [0, 1]",
          mean_square_decay);
  require(beta1 >= 0 && beta1 < 1, "beta1", "a number in [0, 1)", beta1);
  require(beta2 >= 0 && beta2 < 1, "beta2", "a number in [0, 1)", beta2);
  require(std::isfinite(epsilon) && epsilon > 0, "epsilon", "a finite number above 0", epsilon);
  require(std::isfinite(trust_coefficient) && trust_coefficient > 0, "trust_coefficient", "a finite number above 0",
          trust_coefficient);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight decay", "a finite number, at least 0",
          weight_decay);
  if (gradient_clip) require(*gradient_clip > 0, "gradient clip", "a number above 0", *gradient_clip);
  if (norm_clip) norm_clip->validate();
  for (const ParameterGroup& group : groups) {
    require(std::isfinite(group.rate_factor) && group.rate_factor >= 0,
            fmt::format("the rate factor of the group '{}'", group.pattern), "a finite number, at least 0",
            group.rate_factor);
    if (!group.weight_decay) continue;
    require(std::isfinite(*group.weight_decay) && *group.weight_decay >= 0,
            fmt::format("the weight decay of the group '{}'", group.pattern), "a finite number, at least 0",
            *group.weight_decay);
  }
  std::set<std::string> names = {"weight_decay"};
  for (const RegularizationTerm& term : regularization) {
    require(std::isfinite(term.coefficient) && term.coefficient >= 0,
            fmt::format("the coefficient of the term '{}'", term.name), "a finite number, at least 0",
            term.coefficient);
    if (!term.name.empty() && names.insert(term.name).second) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "terms of the loss need names of their own",
                                              .where = "the regularization of an optimizer",
                                              .actual = fmt::format("'{}' again", term.name)});
  }
}

}  // namespace trainyard::optim
