// A file as tar: what is found lies inside. As it is, and with a good checksum in each block, which a fuzzer does not
// guess.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats {
namespace {

std::string with_checksums(std::string content) {
  for (size_t at = 0; content.size() - at >= 512; at += 512) {
    const auto block = content.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::all_of(block, block + 512, [](char byte) { return byte == 0; })) continue;
    content.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    std::for_each(block, block + 512, [&](char byte) { sum += static_cast<unsigned char>(byte); });
    content.replace(at + 148, 7, fmt::format("{:06o}", sum) + '\0');
  }
  return content;
}

void check(const std::string& content) {
  const MemoryFile file(content);
  expect_value_or_error([&] {
    for (const TarMember& member : index_tar(file)) {
      if (member.offset > content.size() || member.size > content.size() - member.offset) std::abort();
    }
  });
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return trainyard::formats::read_twice(bytes, size, trainyard::formats::check, trainyard::formats::with_checksums);
}
