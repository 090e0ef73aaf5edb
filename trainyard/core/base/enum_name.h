// Names for the values of an enumeration.
//
//   std::string_view run_status_name(RunStatus status) {
//     return core::enum_name<RunStatus::kFailed>(status, {"running", "finished", "stopped", "failed"});
//   }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "trainyard/core/base/registry.h"

namespace trainyard::core {

// Returns the name of `value`, and "unknown" for a number that is no value. The values count from 0 to kLast, and
// `names` are theirs in this order; another number of names does not compile.
template <auto kLast, size_t kNames>
constexpr std::string_view enum_name(decltype(kLast) value, const std::string_view (&names)[kNames]) {
  static_assert(kNames == static_cast<size_t>(kLast) + 1, "each value has a name");
  const auto index = static_cast<size_t>(value);
  return index < kNames ? names[index] : "unknown";
}

// Returns the value whose name, at its place in `names`, is `name`. Throws kNotFound with the known names and `kind`.
template <typename Enum, size_t kNames>
Enum enum_value(std::string_view kind, std::string_view name, const std::array<const char*, kNames>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw unknown_name(kind, name, {names.begin(), names.end()});
  return static_cast<Enum>(found - names.begin());
}

}  // namespace trainyard::core
