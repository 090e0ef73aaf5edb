#include "trainyard/frontends/options/parameter_groups.h"

#include <cmath>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::frontends {
namespace {

[[noreturn]] void refuse(const std::string& element) {
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a group of parameters cannot be read",
                     .where = "--parameter_groups",
                     .expected = "PATTERN:RATE_FACTOR or PATTERN:RATE_FACTOR:WEIGHT_DECAY, with finite numbers of at "
                                 "least 0, as in head.*:10 or *.bias:1:0",
                     .actual = fmt::format("'{}'", element)});
}

double read_number(const std::string& element, std::string_view text) {
  double number = -1;
  try {
    const core::FlagSpec real{.name = "parameter_groups", .kind = core::FlagKind::kReal};
    number = std::get<double>(core::parse_flag_value(real, std::string(text)));
  } catch (const core::Error&) {
    refuse(element);
  }
  if (!std::isfinite(number) || number < 0) refuse(element);
  return number;
}

}  // namespace

std::vector<optim::ParameterGroup> parse_parameter_groups(const std::vector<std::string>& elements) {
  std::vector<optim::ParameterGroup> groups;
  for (const std::string& element : elements) {
    const size_t first = element.find(':');
    if (first == std::string::npos || first == 0) refuse(element);
    const std::string_view numbers = std::string_view(element).substr(first + 1);
    const size_t second = numbers.find(':');
    optim::ParameterGroup& group = groups.emplace_back();
    group.pattern = element.substr(0, first);
    group.rate_factor = read_number(element, numbers.substr(0, second));
    if (second != std::string_view::npos) group.weight_decay = read_number(element, numbers.substr(second + 1));
  }
  return groups;
}

}  // namespace trainyard::frontends
