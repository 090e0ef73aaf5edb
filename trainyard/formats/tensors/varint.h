// The variable-length integers of protocol buffers, LevelDB's tables and Snappy: seven bits a byte, the lowest first.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard::formats {

// Removes an integer from the front of `bytes` and returns it. Returns nothing when it is cut or longer than 64 bits.
inline std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace trainyard::formats
