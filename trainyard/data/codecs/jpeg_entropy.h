// Entropy decoding of baseline JPEGs in place of libjpeg's own, which takes half of the time of an image: bytes that
// are stuffed into the data are taken out beforehand, and blocks that are outside the crop are passed over
// (jpeg_huffman.h).
//
// It joins at libjpeg's inner interface (jpegint.h): the function that decodes the coefficients of one MCU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

#include "trainyard/data/codecs/jpeg_huffman.h"

namespace trainyard::data {

// Decodes one image after another; 100 KB. Nothing in it needs a destructor: libjpeg leaves by longjmp.
class JpegEntropyDecoder {
 public:
  // Takes over from libjpeg directly after jpeg_start_decompress, until decompression ends. Does nothing where libjpeg
  // decodes alone: progressive, arithmetic coding, several scans, restart intervals, damage that it reads in a way of
  // its own.
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
  JDIMENSION column_;  // of the next MCU

  // The next `count_` bits are the top ones of `bits_`; data_[next_] comes behind them. data_[0, end_) is the file's
  // data without what is stuffed into it.
  uint64_t bits_;
  int count_;
  size_t next_, end_;
  bool ended_;      // nothing comes behind data_[end_]: a marker was met
  bool truncated_;  // or the file's end
  std::array<uint8_t, kFillBytes + 2 * kMcuBytes> data_;
};

}  // namespace trainyard::data
