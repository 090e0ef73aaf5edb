// Names in error messages, where there may be hundreds.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainyard::train {

// "a, b, c": of more than ten the first ones and how many there are, "..., j, ... (12 in all)".
inline std::string first_names(std::span<const std::string> names) {
  constexpr size_t kShown = 10;
  return fmt::format("{}{}", fmt::join(names.first(std::min(names.size(), kShown)), ", "),
                     names.size() > kShown ? fmt::format(", ... ({} in all)", names.size()) : "");
}

}  // namespace trainyard::train
