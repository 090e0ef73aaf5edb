// A file as JPEG: what decodes has the size of its header, and a part of it is the same decoded alone. As it is stored,
// and turned by its EXIF data.

#include <span>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  for (const bool turned : {false, true}) {
    check_decoder(
        std::as_bytes(std::span(bytes, size)), [turned](auto file) { return read_jpeg_size(file, turned); },
        [turned](auto file, const auto& crop, const DecodeLimits& limits) {
          return decode_jpeg(file, crop, {.limits = limits, .exif_orientation = turned});
        });
  }
  return 0;
}
