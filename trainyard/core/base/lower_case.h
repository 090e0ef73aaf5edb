// Writes text in lower case, for names that people write in either.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::core {

// Returns `text` with A to Z as a to z, whatever the locale; other bytes, those of UTF-8 among them, stay.
inline std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace trainyard::core
