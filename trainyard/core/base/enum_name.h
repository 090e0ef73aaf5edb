// Names for the values of an enumeration.
//
//   std::string_view run_status_name(RunStatus status) {
//     return core::enum_name<RunStatus::kFailed>(status, {"running", "finished", "stopped", "failed"});
//   }
#pragma once

#include <cstddef>
#include <string_view>

namespace trainyard::core {

// Returns the name of `value`, and "unknown" for a number that is no value. The values count from 0 to kLast, and
// `names` are theirs in this order; another number of names does not compile.
template <auto kLast, size_t kNames>
constexpr std::string_view enum_name(decltype(kLast) value, const std::string_view (&names)[kNames]) {
  static_assert(kNames == static_cast<size_t>(kLast) + 1, "each value has a name");
  const auto index = static_cast<size_t>(value);
  return index < kNames ? names[index] : "unknown";
}

}  // namespace trainyard::core
