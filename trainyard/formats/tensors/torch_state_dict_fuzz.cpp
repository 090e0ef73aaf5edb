// A file as PyTorch's state dict, and the bytes as the pickle of one: an archive around them, which a fuzzer does not
// keep whole. Each tensor that is found can be read.
#include <cstdlib>
#include <memory>
#include <string>

#include "trainyard/formats/tensors/torch_state_dict.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"
#include "trainyard/formats/testing/torch_archive.h"

namespace trainyard::formats {
namespace {

void check(const std::string& content) {
  expect_value_or_error([&] {
    const TensorFile file(std::make_unique<MemoryFile>(content), read_torch_state_dict(MemoryFile(content)));
    for (const StoredTensor& tensor : file.tensors()) {
      if (file.read_floats(tensor).size() != static_cast<size_t>(tensor.count())) std::abort();
    }
  });
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return trainyard::formats::read_twice(bytes, size, trainyard::formats::check, trainyard::formats::archive_of);
}
