// A file as BMP: what decodes has the size of its header, and a part of it is the same decoded alone.
#include <span>

#include "trainyard/data/codecs/bmp.h"
#include "trainyard/data/testing/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  const auto file = std::as_bytes(std::span(bytes, size));
  for (const bool turned : {false, true}) {
    check_decoder(
        file, [&](auto header) { return read_bmp_size(header, turned); },
        [&](auto whole, const auto& crop, const DecodeLimits& limits) {
          return decode_bmp(whole, crop, {.limits = limits, .exif_orientation = turned});
        });
  }
  return 0;
}
