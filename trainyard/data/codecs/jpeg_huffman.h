// One Huffman table of a baseline JPEG, in forms that are quick to look up: a look gives a whole coefficient (code, run
// of zeros and value together, as stb_image does), or passes over as many symbols as fit into its bits.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace trainyard::data {

class JpegHuffmanTable {
 public:
  static constexpr int kBits = 11;  // of a look: two tables of an image, 24 KB, stay in the first-level cache

  // A symbol. Bits 0-7: those that code and value take; 8-15: coefficients it goes forward by, kEndOfBlock at the end;
  // 16-31: value. Where the value does not fit into the look, bits 0-7 are 0, 16-19 the value's bits, 20-31 the code's.
  using Symbol = uint32_t;
  static constexpr uint32_t kEndOfBlock = 128;
  static constexpr bool is_whole(Symbol symbol) { return (symbol & 255) != 0; }
  static constexpr int steps(Symbol symbol) { return static_cast<int>(symbol >> 8 & 255); }

  // Symbols without their values. Bits 0-3: those they take; 4-10: coefficients; kEnds: the last of them ends the
  // block.
  using Skip = uint16_t;
  static constexpr uint32_t kEnds = 1 << 15;
  static constexpr uint32_t kNoSkip = kEnds;  // not even one fits

  // Bits that an invalid code takes. libjpeg looks for a code of one more bit than the longest has before it takes what
  // it found for a zero; with another number, all that follows in a damaged file would be other pixels than libjpeg's.
  static constexpr uint32_t kInvalidBits = 17;

  // `table` has passed libjpeg's checks (jpeg_make_d_derived_tbl).
  void build(const JHUFF_TBL& table, bool is_dc);

  // What begins with these kBits bits; 0: a code that is longer.
  Symbol symbol(uint32_t look) const { return symbols_[look]; }
  // The same for codes of any length, from 16 bits; never whole. No such code: a zero, or an end, of kInvalidBits.
  Symbol rare_symbol(uint32_t look) const;
  // From kBits bits.
  Skip skip(uint32_t look) { return skips_[look] != 0 ? skips_[look] : fill_skip(look); }

 private:
  Symbol not_whole(uint8_t code_value, int length) const;
  Skip fill_skip(uint32_t look);

  std::array<Symbol, 1 << kBits> symbols_;
  std::array<Skip, 1 << kBits> skips_;   // filled as they are met: all at once would cost more than they save
  std::array<uint32_t, 17> code_end_;    // behind the last code of each length, at the top of 16 bits
  std::array<int32_t, 17> first_value_;  // index of a length's first in values_, less its first code
  std::array<uint8_t, 256> values_;      // in the order of codes: DC: bits of the value; AC: run << 4 | bits
  bool is_dc_;
};

// The value that `size` bits mean (ITU-T T.81, F.2.2.1).
constexpr int extend_jpeg_value(uint32_t bits, int size) {
  const int value = static_cast<int>(bits);
  return size > 0 && value < (1 << (size - 1)) ? value - (1 << size) + 1 : value;
}

}  // namespace trainyard::data
