// The text of a flag's value and back, with the checks that its declaration asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

// Parses `text` as the kind of `spec`. Throws kInvalidArgument:
//   "Param %s value of %s is lower than the lower bound of %s" (higher ... upper),
//   "Param %s of value %s is not in %s", "Param %s value of %s is not a boolean" (an integer, a finite number).
FlagValue parse_flag_value(const FlagSpec& spec, std::string_view text);

// The text that parse_flag_value reads back as `value`; "" when it is not set.
std::string format_flag_value(const FlagValue& value);

// "a,b,c" -> {"a", "b", "c"}, blanks around the parts removed; "" -> {}.
std::vector<std::string> split_list(std::string_view text);

// "['a', 'b']": lists in messages look as they do in tf_cnn_benchmarks, which is written in Python.
std::string quoted_list(const std::vector<std::string>& values, char open = '[', char close = ']');

}  // namespace trainyard::core
