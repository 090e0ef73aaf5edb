// Encodes bytes as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trainyard::core {

// Returns the bytes in base64, with "+", "/" and padding: RFC 4648, section 4.
inline std::string base64_text(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63U];
    }
  }
  return text;
}

}  // namespace trainyard::core
