// The valid ranges of number flags. tf_cnn_benchmarks declares bounds for three of its flags; values outside of the
// ranges here would run forever, exhaust memory or be meaningless. Also helpers for checks of flags against each other.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::frontends {

// Throws kInvalidArgument for the first flag of `values` that is out of its range, naming it. Ignores flags that the
// table lacks, so that commands with some of the flags can use it.
void check_flag_ranges(const core::FlagValues& values);

// The range of a number flag: from its declaration and from check_flag_ranges(). A missing end is that of its type.
struct FlagRange {
  std::optional<double> least{}, most{};
  bool above_least = false, below_most = false;  // the end itself is invalid
};
[[nodiscard]] FlagRange flag_range(const core::FlagSpec& spec);

// Throws kInvalidArgument with `problem` when the condition is true.
inline void refuse_if(bool condition, std::string problem) {
  if (condition) throw core::Error(core::ErrorCode::kInvalidArgument, std::move(problem));
}

// Returns true when the flag has a value, from its default or given.
inline bool is_set(const core::FlagValues& values, std::string_view name) {
  return !std::holds_alternative<std::monostate>(values.value(name));
}

}  // namespace trainyard::frontends
