// Checks of schedules' numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::optim::schedule_checks {

// Throws kInvalidArgument.
[[noreturn]] void refuse(std::string problem, std::string expected, std::string actual);

// Throw kInvalidArgument for a rate that is negative or not finite, and for fewer than one step. `what` names the
// number: "the learning rate".
void require_rate(double rate, std::string_view what);
void require_steps(int64_t steps, std::string_view what);

}  // namespace trainyard::optim::schedule_checks
