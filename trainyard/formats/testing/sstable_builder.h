// Builds sorted string tables for the tests of their reader, also such as no program writes. For tests only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::formats {

inline std::string varint_of(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Returns the bytes of a block with its type and checksum behind it.
inline std::string with_trailer(std::string block, char type = 0) {
  block.push_back(type);
  append_little_endian<uint32_t>(block, masked_crc32c(block));
  return block;
}

// Returns the content of a block whose keys share nothing.
inline std::string block_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string block;
  for (const auto& [key, value] : entries) {
    block += varint_of(0) + varint_of(key.size()) + varint_of(value.size()) + key + value;
  }
  append_little_endian<uint32_t>(block, 0);  // a restart point
  append_little_endian<uint32_t>(block, 1);
  return block;
}

// Returns a table with the one data block, whose content is `block`, whatever that is.
inline std::string table_of_block(std::string_view block, char type = 0) {
  std::string table = with_trailer(std::string(block), type);
  const std::string index = block_of({{"\xff", varint_of(0) + varint_of(block.size())}});
  const uint64_t place = table.size();
  table += with_trailer(index);
  std::string footer = varint_of(0) + varint_of(0) + varint_of(place) + varint_of(index.size());
  footer.resize(40);
  append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
  return table + footer;
}

inline std::string table_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  return table_of_block(block_of(entries));
}

}  // namespace trainyard::formats
