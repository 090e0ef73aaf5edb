#include "trainyard/core/flags/flag_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::core {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

Error wrong_kind(const FlagSpec& spec, std::string_view text, std::string_view kind) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("Param {} value of {} is not {}", spec.name, text.empty() ? "''" : text, kind)};
}

bool parse_boolean(const FlagSpec& spec, std::string_view text) {
  const std::string lower = lower_case(trimmed(text));
  for (const char* word : {"true", "t", "1", "yes", "y", "on"}) {
    if (lower == word) return true;
  }
  for (const char* word : {"false", "f", "0", "no", "n", "off"}) {
    if (lower == word) return false;
  }
  throw wrong_kind(spec, text, "a boolean");
}

int64_t parse_integer(const FlagSpec& spec, std::string_view text) {
  std::string_view digits = trimmed(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const bool hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
  if (hexadecimal) digits.remove_prefix(2);
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, hexadecimal ? 16 : 10);
  const uint64_t limit = uint64_t{1} << 63;
  if (error != std::errc() || end != digits.data() + digits.size() || magnitude > limit - (negative ? 0 : 1)) {
    throw wrong_kind(spec, text, "an integer");
  }
  return negative ? static_cast<int64_t>(0 - magnitude) : static_cast<int64_t>(magnitude);
}

double parse_real(const FlagSpec& spec, std::string_view text) {
  std::string_view digits = trimmed(text);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    throw wrong_kind(spec, text, "a finite number");
  }
  return value;
}

template <typename Number>
void check_bounds(const FlagSpec& spec, Number value) {
  if (spec.lower_bound && static_cast<double>(value) < *spec.lower_bound) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("Param {} value of {} is lower than the lower bound of {}",
                                                         spec.name, value, *spec.lower_bound));
  }
  if (spec.upper_bound && static_cast<double>(value) > *spec.upper_bound) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("Param {} value of {} is higher than the upper bound of {}",
                                                         spec.name, value, *spec.upper_bound));
  }
  const auto reaches = [&](bool excluded, const std::optional<double>& bound) {
    return excluded && static_cast<double>(value) == bound;
  };
  if (reaches(spec.above_lower, spec.lower_bound) || reaches(spec.below_upper, spec.upper_bound)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Param {} value of {} must be {} {}", spec.name, value,
                            reaches(spec.above_lower, spec.lower_bound) ? "above" : "below", value));
  }
}

void check_choice(const FlagSpec& spec, std::string_view text) {
  if (std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end()) return;
  const std::string nearest = nearest_name(text, spec.choices);
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("Param {} of value {} is not in {}", spec.name, text,
                                      quoted_list(spec.choices, '(', ')')),
               .remedy = nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest)});
}

}  // namespace

FlagValue parse_flag_value(const FlagSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case FlagKind::kBoolean:
      return parse_boolean(spec, text);
    case FlagKind::kInteger: {
      if (std::find(spec.words.begin(), spec.words.end(), text) != spec.words.end()) return std::string(text);
      const int64_t value = parse_integer(spec, text);
      check_bounds(spec, value);
      return value;
    }
    case FlagKind::kReal: {
      const double value = parse_real(spec, text);
      check_bounds(spec, value);
      return value;
    }
    case FlagKind::kText:
      return std::string(text);
    case FlagKind::kChoice:
      if (const auto former = spec.former_values.find(std::string(text)); former != spec.former_values.end()) {
        note_former_name("--" + spec.name, former->first, former->second);
        return former->second;
      }
      check_choice(spec, text);
      return std::string(text);
    case FlagKind::kList:
      return split_list(text);
  }
  throw Error(ErrorCode::kInternal, "flag kind out of range");
}

std::string format_flag_value(const FlagValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return fmt::format("{}", fmt::join(*list, ","));
  return "";
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  if (trimmed(text).empty()) return parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.emplace_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string quoted_list(const std::vector<std::string>& values, char open, char close) {
  std::string text(1, open);
  for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "'" : ", '") + values[i] + "'";
  return text + close;
}

}  // namespace trainyard::core
