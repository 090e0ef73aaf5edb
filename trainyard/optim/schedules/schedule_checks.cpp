#include "trainyard/optim/schedules/schedule_checks.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::optim::schedule_checks {

void refuse(std::string problem, std::string expected, std::string actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = std::move(problem), .expected = std::move(expected), .actual = std::move(actual)});
}

void require_rate(double rate, std::string_view what) {
  if (!std::isfinite(rate) || rate < 0) {
    refuse(fmt::format("{} is not usable", what), "a finite number, at least 0", fmt::format("{}", rate));
  }
}

void require_steps(int64_t steps, std::string_view what) {
  if (steps <= 0) refuse(fmt::format("{} are not usable", what), "at least 1", std::to_string(steps));
}

}  // namespace trainyard::optim::schedule_checks
