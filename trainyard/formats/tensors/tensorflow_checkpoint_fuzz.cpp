// Bytes as the index of a TensorFlow checkpoint whose shards are the same bytes, as the one block of such an index,
// which a fuzzer would not give its checksum, as a message of it, and as a compressed block. What is found can be read.
#include <cstdlib>
#include <memory>
#include <string>

#include "trainyard/formats/tensors/snappy.h"
#include "trainyard/formats/tensors/tensorflow_bundle.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/sstable_builder.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats {
namespace {

void read_index(const std::string& index, const std::string& numbers) {
  expect_value_or_error([&] {
    const TensorFlowCheckpoint found =
        read_tensorflow_checkpoint(MemoryFile(index), "memory", [&](int64_t shard, int64_t shards) {
          if (shard >= shards) std::abort();
          return std::make_unique<MemoryFile>(numbers);
        });
    for (const StoredTensor& tensor : found.tensors.tensors()) {
      if (found.tensors.read_floats(tensor).size() != static_cast<size_t>(tensor.count())) std::abort();
    }
  });
}

void check(const std::string& content) {
  read_index(content, content);
  read_index(table_of_block(content), content);
  read_index(table_of_block(content, 1), content);
  core::Result<std::string> plain = decompress_snappy(content);
  if (plain.ok() && plain.value().size() > 22 * content.size()) std::abort();
  if (core::Result<BundleEntry> entry = parse_bundle_entry(content); entry.ok()) {
    for (const BundleSlice& slice : entry.value().slices) {
      if (bundle_slice_key("name", slice).empty()) std::abort();
    }
  }
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  trainyard::formats::check(std::string(reinterpret_cast<const char*>(bytes), size));
  return 0;
}
