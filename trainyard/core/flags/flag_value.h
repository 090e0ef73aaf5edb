// Converts a flag's value from and to text, and checks it against the flag's declaration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

// Parses `text` as the kind of `spec`. Throws kInvalidArgument with one of these texts:
//
//   "Param %s value of %s is lower than the lower bound of %s" (or higher than the upper bound)
//   "Param %s of value %s is not in %s"
//   "Param %s value of %s is not a boolean" (an integer, a finite number)
FlagValue parse_flag_value(const FlagSpec& spec, std::string_view text);

// Returns the text that parse_flag_value() reads back as `value`, and "" for a value that is not set.
std::string format_flag_value(const FlagValue& value);

// Splits "a,b,c" into {"a", "b", "c"}, with blanks around the parts removed. Returns {} for "".
std::vector<std::string> split_list(std::string_view text);

// Returns "['a', 'b']": lists in messages look as they do in tf_cnn_benchmarks, which is written in Python.
std::string quoted_list(const std::vector<std::string>& values, char open = '[', char close = ']');

}  // namespace trainyard::core
