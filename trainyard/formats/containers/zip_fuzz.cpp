// A file as a zip archive: members lie inside.
#include <cstdlib>
#include <string>

#include "trainyard/formats/containers/zip.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  const MemoryFile file(std::string(reinterpret_cast<const char*>(bytes), size));
  expect_value_or_error([&] {
    for (const ZipMember& member : read_zip_directory(file)) {
      if (member.offset > size || member.size > size - member.offset) std::abort();
    }
  });
  return 0;
}
