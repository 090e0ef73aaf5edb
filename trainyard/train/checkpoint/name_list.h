// Lists names in error messages, where there may be hundreds.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace trainyard::train {

// Returns "a, b, c". Lists the first ten of more than ten names, with their number: "..., j, ... (12 in all)".
// Truncates overlong names, which only a damaged file has.
inline std::string first_names(std::span<const std::string> names) {
  constexpr size_t kShown = 10, kLongest = 200;
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), kShown))) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", std::string_view(name).substr(0, kLongest));
  }
  return names.size() > kShown ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

}  // namespace trainyard::train
