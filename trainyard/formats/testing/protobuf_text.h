// Protocol buffer messages as text, by the numbers of their fields. For tests only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <protozero/pbf_reader.hpp>

namespace trainyard::formats {

enum class FieldContent : uint8_t { kMessage, kPackedInt64, kPackedDouble };

// What fields of bytes hold, by their path; bytes or text where a field is not named.
using FieldContents = std::map<std::string, FieldContent>;

// Returns "path: value" lines in the order of the bytes; a path is the field's number behind those of the messages that
// it is in: "5.1.2". Texts and bytes are in quotes.
inline std::string message_text(std::string_view bytes, const FieldContents& contents, const std::string& path = "") {
  std::string text;
  protozero::pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    const std::string field = path + fmt::format("{}{}", path.empty() ? "" : ".", message.tag());
    const auto content = contents.find(field);
    if (message.wire_type() == protozero::pbf_wire_type::varint) {
      text += fmt::format("{}: {}\n", field, message.get_int64());
    } else if (message.wire_type() == protozero::pbf_wire_type::fixed32) {
      text += fmt::format("{}: {}\n", field, message.get_float());
    } else if (message.wire_type() == protozero::pbf_wire_type::fixed64) {
      text += fmt::format("{}: {}\n", field, message.get_double());
    } else if (content == contents.end()) {
      text += fmt::format("{}: '{}'\n", field, message.get_string());
    } else if (content->second == FieldContent::kMessage) {
      text += message_text(message.get_string(), contents, field);
    } else {
      text += field + ":";
      if (content->second == FieldContent::kPackedInt64) {
        for (const int64_t number : message.get_packed_int64()) text += fmt::format(" {}", number);
      } else {
        for (const double number : message.get_packed_double()) text += fmt::format(" {}", number);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace trainyard::formats
