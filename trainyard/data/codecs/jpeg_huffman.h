// One Huffman table of a baseline JPEG, as lookup tables: one lookup gives a whole coefficient (code, run of zeros and
// value together, as stb_image does), or skips as many symbols as fit into its bits.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace trainyard::data {

class JpegHuffmanTable {
 public:
  static constexpr int kBits = 11;  // bits of a lookup: two tables of an image, 24 KB, stay in the first-level cache

  // A symbol. Bits 0-7: length of code and value; 8-15: coefficients to advance by, kEndOfBlock at the end; 16-31:
  // value. When the value does not fit into the lookup, bits 0-7 are 0, 16-19 the value's length, 20-31 the code's.
  using Symbol = uint32_t;
  static constexpr uint32_t kEndOfBlock = 128;
  static constexpr bool is_whole(Symbol symbol) { return (symbol & 255) != 0; }
  static constexpr int steps(Symbol symbol) { return static_cast<int>(symbol >> 8 & 255); }

  // Symbols to skip. Bits 0-3: their length; 4-10: coefficients; kEnds: the last of them ends the block.
  using Skip = uint16_t;
  static constexpr uint32_t kEnds = 1 << 15;
  static constexpr uint32_t kNoSkip = kEnds;  // not even one symbol fits

  // Length of an invalid code. libjpeg looks for a code of one more bit than the longest before it treats the code as a
  // zero; with another length, the rest of a damaged file would have other pixels than libjpeg's.
  static constexpr uint32_t kInvalidBits = 17;

  // Builds the tables. `table` has passed libjpeg's checks (jpeg_make_d_derived_tbl).
  void build(const JHUFF_TBL& table, bool is_dc);

  // Returns the symbol that begins with these kBits bits; 0 when its code is longer.
  Symbol symbol(uint32_t look) const { return symbols_[look]; }
  // Does the same for codes of any length, from 16 bits, without the value. Returns a zero, or an end, of kInvalidBits
  // for an invalid code.
  Symbol rare_symbol(uint32_t look) const;
  // Returns the symbols to skip, from kBits bits.
  Skip skip(uint32_t look) { return skips_[look] != 0 ? skips_[look] : fill_skip(look); }

 private:
  Symbol not_whole(uint8_t code_value, int length) const;
  Skip fill_skip(uint32_t look);

  std::array<Symbol, 1 << kBits> symbols_;
  std::array<Skip, 1 << kBits> skips_;   // filled at first use: filling all would cost more than it saves
  std::array<uint32_t, 17> code_end_;    // one past the last code of each length, in the top of 16 bits
  std::array<int32_t, 17> first_value_;  // index in values_ of a length's first code, minus that code
  std::array<uint8_t, 256> values_;      // in the order of codes. DC: bits of the value; AC: run << 4 | bits
  bool is_dc_;
};

// Returns the value that `size` bits mean (ITU-T T.81, F.2.2.1).
constexpr int extend_jpeg_value(uint32_t bits, int size) {
  const int value = static_cast<int>(bits);
  return size > 0 && value < (1 << (size - 1)) ? value - (1 << size) + 1 : value;
}

}  // namespace trainyard::data
