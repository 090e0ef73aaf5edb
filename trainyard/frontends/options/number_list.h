// Parses flags with lists of numbers.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::frontends {

// `Number` is int64_t with kInteger, double with kReal. Throws kInvalidArgument, with the text of tf_cnn_benchmarks.
template <typename Number>
std::vector<Number> read_numbers(const core::FlagValues& values, const std::string& flag, core::FlagKind kind,
                                 std::string_view kind_plural) {
  const core::FlagSpec element{.name = flag, .kind = kind};
  std::vector<Number> numbers;
  try {
    for (const std::string& text : values.list(flag)) {
      numbers.push_back(std::get<Number>(core::parse_flag_value(element, text)));
    }
  } catch (const core::Error&) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("Param {} value of {} cannot be converted to a list of {}.", flag,
                                  core::quoted_list(values.list(flag)), kind_plural));
  }
  return numbers;
}

}  // namespace trainyard::frontends
