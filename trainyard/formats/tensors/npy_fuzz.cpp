// A file as .npy. What is accepted is as long as its shape says, and is written and read again with the same numbers.
#include <cstdlib>
#include <string>

#include "trainyard/formats/tensors/npy.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  expect_value_or_error([&] {
    const NpyArray array = read_npy(MemoryFile({reinterpret_cast<const char*>(bytes), size}));
    size_t count = 1;
    for (const int64_t length : array.shape) count *= static_cast<size_t>(length);
    if (array.bytes.size() != count * npy_type_bytes(array.type)) std::abort();
    std::string again = encode_npy_header(array.type, array.shape, count);
    again.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    const NpyArray copy = read_npy(MemoryFile(again));
    if (copy.type != array.type || copy.shape != array.shape || copy.bytes != array.bytes) std::abort();
  });
  return 0;
}
