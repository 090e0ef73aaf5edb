#include "trainyard/data/datasets/webdataset_label.h"

#include <charconv>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Digits with a sign before them: a number, be it one that fits into 64 bits or not.
bool looks_like_a_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Error no_label(const std::string& actual) {
  return {ErrorCode::kCorruptData,
          {.problem = "JSON of a sample has no label",
           .expected = "an object with \"label\" or \"class\", a whole number or a name, or with \"classname\"",
           .actual = actual}};
}

}  // namespace

core::Result<WebLabel> parse_cls_label(const std::string& text) {
  const std::string_view word = stripped(text);
  if (word.empty())
    return Error(ErrorCode::kCorruptData, {.problem = "label is empty", .expected = "a number or name"});
  if (!looks_like_a_number(word)) return WebLabel{.name = std::string(word)};
  WebLabel label{.is_number = true};
  const std::string_view digits = word.starts_with('+') ? word.substr(1) : word;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), label.number).ec != std::errc()) {
    return Error(ErrorCode::kCorruptData,
                 {.problem = "label is out of range", .expected = "a number of 64 bits", .actual = std::string(word)});
  }
  return label;
}

core::Result<WebLabel> parse_json_label(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return no_label("something else");
  WebLabel label;
  for (const char* key : {"classname", "class_name"}) {
    if (label.name.empty() && json.contains(key) && json[key].is_string()) label.name = json[key].get<std::string>();
  }
  for (const char* key : {"label", "class"}) {
    if (!json.contains(key)) continue;
    const auto& value = json[key];
    if (value.is_string()) {
      core::Result<WebLabel> said = parse_cls_label(value.get<std::string>());
      if (said.ok() && said.value().is_number) said.value().name = label.name;
      return said;
    }
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= kMost);
    if (!fits) return no_label(std::string("a ") + value.type_name() + " as " + key);
    label.is_number = true;
    label.number = value.get<int64_t>();
    return label;
  }
  if (label.name.empty()) return no_label("neither");
  return label;
}

std::string json_label(int64_t number, const std::string& name) {
  try {
    return nlohmann::ordered_json({{"label", number}, {"class_name", name}}).dump();
  } catch (const nlohmann::json::type_error&) {
    return "";
  }
}

}  // namespace trainyard::data
