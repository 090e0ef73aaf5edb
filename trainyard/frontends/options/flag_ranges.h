// Where the meaning of a number flag ends. tf_cnn_benchmarks declares bounds for three of its flags; a value beyond
// these here would run for ever, take all memory or mean nothing. And what checks of flags against each other are made
// of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::frontends {

// Throws kInvalidArgument for the first flag of `values` that is out of its range, naming it. Flags that the table
// lacks are passed over, so that commands with a part of the flags check theirs alike.
void check_flag_ranges(const core::FlagValues& values);

// Where the values of a number flag end: by its declaration, and by what check_flag_ranges() knows of it. An end
// without a number is that of its type.
struct FlagRange {
  std::optional<double> least{}, most{};
  bool above_least = false, below_most = false;  // the end itself is refused
};
[[nodiscard]] FlagRange flag_range(const core::FlagSpec& spec);

// Throws kInvalidArgument with `problem` where the condition holds.
inline void refuse_if(bool condition, std::string problem) {
  if (condition) throw core::Error(core::ErrorCode::kInvalidArgument, std::move(problem));
}

// Returns true where the flag has a value, by its default or given.
inline bool is_set(const core::FlagValues& values, std::string_view name) {
  return !std::holds_alternative<std::monostate>(values.value(name));
}

}  // namespace trainyard::frontends
