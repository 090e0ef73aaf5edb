// A file as index of TFRecords. What is accepted says the same in its summary, and is written as it was read, but for
// the last line break and zeros before numbers.
#include <cstdlib>
#include <string_view>

#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/testing/hostile_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  expect_value_or_error([&] { summarize_record_index(text); });
  expect_value_or_error([&] {
    const RecordIndex index = parse_record_index(text);
    const RecordIndexSummary summary = summarize_record_index(text);
    if (summary.records != index.size() || summary.file_size != index.file_size()) std::abort();
    if (parse_record_index(format_record_index(index)).file_size() != index.file_size()) std::abort();
  });
  return 0;
}
