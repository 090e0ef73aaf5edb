#include "trainyard/data/codecs/jpeg_huffman.h"

#include <algorithm>
#include <cstring>

namespace trainyard::data {
namespace {

int value_bits(uint8_t value, bool is_dc) {
  return is_dc ? value : value & 15;
}

// An AC value without bits ends the block but for the one that means 16 zeros. Only 0 should; libjpeg takes all so.
uint32_t steps_of(uint8_t value, bool is_dc) {
  if (is_dc) return 1;
  const bool ends = (value & 15) == 0 && value != 0xf0;
  return ends ? JpegHuffmanTable::kEndOfBlock : (value >> 4) + 1U;
}

}  // namespace

JpegHuffmanTable::Symbol JpegHuffmanTable::not_whole(uint8_t value, int length) const {
  return static_cast<uint32_t>(length) << 20 | static_cast<uint32_t>(value_bits(value, is_dc_)) << 16 |
         steps_of(value, is_dc_) << 8;
}

void JpegHuffmanTable::build(const JHUFF_TBL& table, bool is_dc) {
  is_dc_ = is_dc;
  std::memcpy(values_.data(), table.huffval, values_.size());
  symbols_.fill(0);
  skips_.fill(0);
  uint32_t code = 0;
  int index = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    first_value_[length] = index - static_cast<int>(code);
    for (int i = 0; i < table.bits[length]; ++i, ++index, ++code) {
      if (length > kBits) continue;
      const uint8_t value = values_[index];
      const int size = value_bits(value, is_dc);
      const auto begin = symbols_.begin() + (static_cast<size_t>(code) << (kBits - length));
      const int spare = kBits - length - size;
      if (spare < 0) {
        std::fill_n(begin, size_t{1} << (kBits - length), not_whole(value, length));
        continue;
      }
      const uint32_t common = steps_of(value, is_dc) << 8 | static_cast<uint32_t>(length + size);
      for (uint32_t bits = 0; bits < 1U << size; ++bits) {
        const auto number = static_cast<uint32_t>(extend_jpeg_value(bits, size));
        std::fill_n(begin + (static_cast<size_t>(bits) << spare), size_t{1} << spare, number << 16 | common);
      }
    }
    code_end_[length] = code << (16 - length);
  }
}

JpegHuffmanTable::Symbol JpegHuffmanTable::rare_symbol(uint32_t look) const {
  for (int length = kBits + 1; length <= 16; ++length) {
    if (look >= code_end_[length]) continue;
    const int index = first_value_[length] + static_cast<int>(look >> (16 - length));
    return not_whole(values_[index & 255], length);
  }
  return kInvalidBits << 20 | steps_of(0, is_dc_) << 8;
}

JpegHuffmanTable::Skip JpegHuffmanTable::fill_skip(uint32_t look) {
  static constexpr uint32_t kMask = (1U << kBits) - 1;
  static constexpr uint32_t kMostSteps = 127 - 16;  // so that one symbol more still fits into 7 bits
  int taken = 0;
  uint32_t skipped = 0;
  bool ends = false;
  while (!ends && skipped <= kMostSteps) {
    // Behind the look's bits come zeros; a symbol that needs them does not count.
    const Symbol next = symbols_[look << taken & kMask];
    const int length = static_cast<int>(is_whole(next) ? next & 255 : (next >> 20) + (next >> 16 & 15));
    if (next == 0 || taken + length > kBits) break;
    taken += length;
    ends = steps(next) == kEndOfBlock;
    if (!ends) skipped += steps(next);
  }
  const uint32_t entry = (ends ? kEnds : 0) | skipped << 4 | static_cast<uint32_t>(taken);
  skips_[look] = static_cast<Skip>(taken == 0 ? kNoSkip : entry);
  return skips_[look];
}

}  // namespace trainyard::data
