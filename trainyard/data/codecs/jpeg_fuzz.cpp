// A file as JPEG: what decodes has the size of its header, and a part of it is the same decoded alone. As it is stored,
// and turned by its EXIF data.

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  check_format(bytes, size, read_jpeg_size, decode_jpeg);
  return 0;
}
