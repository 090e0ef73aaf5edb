// A file as TFRecord, by index and from front to back; as it is, and with good checksums, which a fuzzer does not
// guess.
#include <string>

#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats {
namespace {

void put_checksum(std::string& content, size_t at, size_t begin, size_t length) {
  std::string checksum;
  append_little_endian(checksum, masked_crc32c(std::string_view(content).substr(begin, length)));
  content.replace(at, checksum.size(), checksum);
}

std::string with_checksums(std::string content) {
  for (size_t at = 0; content.size() - at >= kTfRecordFrameBytes;) {
    put_checksum(content, at + 8, at, 8);
    const auto length = load_little_endian<uint64_t>(content.data() + at);
    if (length > content.size() - at - kTfRecordFrameBytes) break;
    put_checksum(content, at + 12 + length, at + 12, length);
    at += kTfRecordFrameBytes + length;
  }
  return content;
}

void check(const std::string& content) {
  const MemoryFile file(content);
  expect_value_or_error([&] {
    std::string buffer;
    for (const RecordSpan span : index_tfrecord(file)) static_cast<void>(read_tfrecord(file, span, buffer));
  });
  expect_value_or_error([&] {
    TfRecordReader reader(file);
    for (std::string record; reader.next(record);) {
    }
  });
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return trainyard::formats::read_twice(bytes, size, trainyard::formats::check, trainyard::formats::with_checksums);
}
