// Escapes text for XML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::core {

// Returns `text` with the characters escaped that would end a text or an attribute's value.
inline std::string xml_text(std::string_view text) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace trainyard::core
