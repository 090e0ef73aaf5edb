// A text as the manifest of a checkpoint, as it is and with a good checksum, which a fuzzer does not guess. What is
// accepted is written and read again as the same manifest.
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {
namespace {

std::string with_checksum(const std::string& content) {
  const std::string body = content.substr(0, content.rfind("\"crc32c\": \"0x"));
  return body + fmt::format("\"crc32c\": \"0x{:08x}\"\n}}\n", core::crc32c(body));
}

void check(const std::string& content) {
  formats::expect_value_or_error([&] {
    const Manifest manifest = decode_manifest(content, "manifest.json");
    const std::string written = encode_manifest(manifest);
    if (encode_manifest(decode_manifest(written, "again")) != written) std::abort();
  });
}

}  // namespace
}  // namespace trainyard::train

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return trainyard::formats::read_twice(bytes, size, trainyard::train::check, trainyard::train::with_checksum);
}
