// Decodes JPEGs by libjpeg alone, row by row: the independent source that our decoder is compared with, which decodes
// the entropy-coded data by itself, and only the part that is wanted. For tests only.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>

#include <jpeglib.h>

#include "trainyard/data/image/image.h"
// After jpeglib.h.
#include <jerror.h>

namespace trainyard::data {

// What libjpeg says of a file.
struct PlainDecoding {
  Image image{};
  std::string error{};         // libjpeg gave up with this message
  bool ends_early = false;     // libjpeg filled up what was missing at the file's end
  bool invalid_codes = false;  // it met codes that are in no table
  int scans = 0;               // read so far
};

namespace plain_jpeg {

struct Errors {
  jpeg_error_mgr base;  // first: libjpeg knows only this part
  std::jmp_buf escape;
  PlainDecoding* decoding;
};

inline Errors& errors_of(j_common_ptr codec) {
  return *reinterpret_cast<Errors*>(codec->err);
}

[[noreturn]] inline void give_up(j_common_ptr codec) {
  char message[JMSG_LENGTH_MAX];
  codec->err->format_message(codec, message);
  errors_of(codec).decoding->error = message;
  std::longjmp(errors_of(codec).escape, 1);
}

inline void note_warning(j_common_ptr codec, int level) {
  if (level != -1) return;
  PlainDecoding& decoding = *errors_of(codec).decoding;
  if (codec->err->msg_code == JWRN_JPEG_EOF) decoding.ends_early = true;
  if (codec->err->msg_code == JWRN_HUFF_BAD_CODE) decoding.invalid_codes = true;
}

inline void count_scans(j_common_ptr codec) {
  errors_of(codec).decoding->scans = reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number;
}

// Holds only trivial locals, which a longjmp may leave. `rows` gets the rows as libjpeg gives them.
inline void decode_into(jpeg_decompress_struct& codec, Errors& errors, std::span<const std::byte> file,
                        int64_t most_pixels, PooledVector<uint8_t>& rows, PlainDecoding& decoding) {
  if (setjmp(errors.escape) != 0) return;
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&codec, TRUE);
  if (int64_t{codec.image_width} * codec.image_height > most_pixels) {
    decoding.error = "too large";
    return;
  }
  const bool inks = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  codec.do_block_smoothing = FALSE;
  jpeg_start_decompress(&codec);
  Image& image = decoding.image;
  image.height = static_cast<int>(codec.output_height);
  image.width = static_cast<int>(codec.output_width);
  const size_t row_bytes = static_cast<size_t>(codec.output_components) * codec.output_width;
  rows.resize(row_bytes * codec.output_height);
  while (codec.output_scanline < codec.output_height) {
    JSAMPROW row = rows.data() + row_bytes * codec.output_scanline;
    jpeg_read_scanlines(&codec, &row, 1);
  }
}

}  // namespace plain_jpeg

// Decodes the whole image as RGB with libjpeg's defaults, but for its smoothing of blocks. CMYK becomes RGB by
// multiplication: R = (255 - C) * (255 - K) / 255, rounded down; Adobe's inks are stored inverted.
inline PlainDecoding decode_plainly(std::span<const std::byte> file,
                                    int64_t most_pixels = std::numeric_limits<int64_t>::max()) {
  PlainDecoding decoding;
  PooledVector<uint8_t> rows;
  jpeg_decompress_struct codec{};
  jpeg_progress_mgr progress{};
  plain_jpeg::Errors errors{.base = {}, .escape = {}, .decoding = &decoding};
  codec.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = plain_jpeg::give_up;
  errors.base.emit_message = plain_jpeg::note_warning;
  jpeg_create_decompress(&codec);
  progress.progress_monitor = plain_jpeg::count_scans;
  codec.progress = &progress;
  plain_jpeg::decode_into(codec, errors, file, most_pixels, rows, decoding);
  if (decoding.error.empty() && codec.output_components == 4) {
    Image& image = decoding.image;
    image.pixels.resize(rows.size() / 4 * 3);
    for (size_t i = 0; i < rows.size() / 4; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        const int ink = rows[4 * i + c], black = rows[4 * i + 3];
        image.pixels[3 * i + c] =
            static_cast<uint8_t>(codec.saw_Adobe_marker != 0 ? ink * black / 255 : (255 - ink) * (255 - black) / 255);
      }
    }
  } else {
    decoding.image.pixels = std::move(rows);
  }
  jpeg_destroy_decompress(&codec);
  return decoding;
}

}  // namespace trainyard::data
