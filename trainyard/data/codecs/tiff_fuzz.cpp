// A file as TIFF: what decodes has the size of its header, and a part of it is the same decoded alone.
#include "trainyard/data/codecs/optional_codecs.h"
#include "trainyard/data/testing/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  check_format(bytes, size, read_tiff_size, decode_tiff);
  return 0;
}
