// A file as JPEG: what decodes has the size of its header, and a part of it is the same decoded alone.

#include <span>

#include "trainyard/data/image_fuzz_for_test.h"
#include "trainyard/data/jpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  check_decoder(std::as_bytes(std::span(bytes, size)), read_jpeg_size, decode_jpeg);
  return 0;
}
