// What --describe_input prints: the operations that images go through.
#pragma once

#include <string>

#include "trainyard/frontends/options/input_settings.h"

namespace trainyard::frontends {

// Returns the operations on training images, what makes batches of them, and the operations on validation images, a
// line each, under three headings. Throws kUnsupported for data sets whose images are not described.
[[nodiscard]] std::string input_lines(const InputSettings& input);

}  // namespace trainyard::frontends
