// A file as TFRecord, by index and from front to back; as it is, and with good checksums, which a fuzzer does not
// guess.
#include <string>

#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/record_checksums.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats {
namespace {

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
  return trainyard::formats::read_twice(bytes, size, trainyard::formats::check,
                                        trainyard::formats::with_record_checksums);
}
