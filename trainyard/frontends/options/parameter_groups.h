// Parses the groups of parameters that --parameter_groups names.
#pragma once

#include <string>
#include <vector>

#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::frontends {

// Returns the groups of elements "PATTERN:RATE_FACTOR" or "PATTERN:RATE_FACTOR:WEIGHT_DECAY", in their order. Throws
// kInvalidArgument, with the element, for one of another form and for numbers that are not finite or below 0.
[[nodiscard]] std::vector<optim::ParameterGroup> parse_parameter_groups(const std::vector<std::string>& elements);

}  // namespace trainyard::frontends
