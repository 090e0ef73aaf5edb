// A file as safetensors: what the header tells lies inside the file, no two tensors share a byte, and each can be read.
#include <cstdlib>
#include <memory>
#include <string>

#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  const std::string content(reinterpret_cast<const char*>(bytes), size);
  expect_value_or_error([&] {
    const TensorFile file(std::make_unique<MemoryFile>(content), read_safetensors_header(MemoryFile(content)));
    uint64_t end = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.offset < end) std::abort();
      end = tensor.offset + static_cast<uint64_t>(tensor.count()) * tensor_type_bytes(tensor.type);
      if (end > size || file.read_floats(tensor).size() != static_cast<size_t>(tensor.count())) std::abort();
    }
  });
  return 0;
}
