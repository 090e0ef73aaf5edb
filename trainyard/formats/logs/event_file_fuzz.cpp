// A file as TensorBoard's events, as it is and with good checksums, and the bytes as the message of one event. What is
// accepted is written and read again as the same event.
#include <cstdlib>
#include <optional>
#include <string>

#include "trainyard/formats/logs/event_file.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/record_checksums.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats {
namespace {

// Compares the messages, so that not a number equals itself.
void check_event(const Event& event) {
  const std::string encoded = encode_event(event);
  core::Result<Event> again = decode_event(encoded);
  if (!again.ok() || encode_event(again.value()) != encoded) std::abort();
}

void check(const std::string& content) {
  const MemoryFile file(content);
  expect_value_or_error([&] {
    EventFileReader reader(file);
    while (const std::optional<Event> event = reader.next()) check_event(*event);
  });
  if (core::Result<Event> event = decode_event(content); event.ok()) check_event(event.value());
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return trainyard::formats::read_twice(bytes, size, trainyard::formats::check,
                                        trainyard::formats::with_record_checksums);
}
