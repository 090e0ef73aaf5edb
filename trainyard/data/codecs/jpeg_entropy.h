// Decodes the entropy-coded data of baseline JPEGs instead of libjpeg, whose decoder takes half of the time of an
// image. Stuffed bytes are removed beforehand, and blocks outside of the crop are skipped (jpeg_huffman.h).
//
// Replaces a function of libjpeg's internal interface (jpegint.h): the one that decodes the coefficients of an MCU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

#include "trainyard/data/codecs/jpeg_huffman.h"

namespace trainyard::data {

// Decodes one image after another. Takes 100 KB. No member needs a destructor, because libjpeg reports errors by
// longjmp.
class JpegEntropyDecoder {
 public:
  // Replaces libjpeg's entropy decoder from directly after jpeg_start_decompress until decompression ends. Does nothing
  // for files that libjpeg must decode itself: progressive, arithmetic coding, several scans, restart intervals, and
  // damage that libjpeg handles in its own way.
  void attach(jpeg_decompress_struct& codec);

 private:
  static constexpr size_t kMcuBytes = 4096;  // more than an MCU takes: 10 blocks of 64 symbols of 31 bits
  static constexpr size_t kFillBytes = 16384;

  struct Block {
    JpegHuffmanTable* dc;
    JpegHuffmanTable* ac;
    int component;
  };

  static boolean decode_mcu(j_decompress_ptr codec, JBLOCKROW* blocks);
  void decode(jpeg_decompress_struct& codec, JBLOCKROW* blocks);
  void fill(jpeg_source_mgr& source);

  std::array<JpegHuffmanTable, NUM_HUFF_TBLS> dc_, ac_;
  std::array<Block, D_MAX_BLOCKS_IN_MCU> mcu_;
  std::array<int, MAX_COMPS_IN_SCAN> last_dc_;
  JDIMENSION column_;  // column of the next MCU

  // The next `count_` bits are the top ones of `bits_`; data_[next_] follows them. data_[0, end_) is the file's data
  // without stuffed bytes.
  uint64_t bits_;
  int count_;
  size_t next_, end_;
  bool ended_;      // the data end at data_[end_]: a marker was found
  bool truncated_;  // or the file's end
  std::array<uint8_t, kFillBytes + 2 * kMcuBytes> data_;
};

}  // namespace trainyard::data
