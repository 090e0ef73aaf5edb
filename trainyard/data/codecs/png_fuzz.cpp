// A file as PNG: what decodes has the size of its header, and a part of it is the same decoded alone. As it is, and
// with a good checksum behind each chunk, which a fuzzer does not guess.
#include <span>
#include <vector>

#include "trainyard/data/codecs/png.h"
#include "trainyard/data/testing/image_fuzz.h"

namespace {

constexpr size_t kSignature = 8;  // bytes before the first chunk; a chunk: length, type, data, checksum

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::vector<std::byte> with_checksums(std::span<const std::byte> bytes) {
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  for (size_t at = kSignature; file.size() >= at + 12;) {
    size_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<size_t>(file[at + i]);
    if (length > file.size() - at - 12) break;
    const uint32_t crc = crc32(std::span(file).subspan(at + 4, length + 4));
    at += 8 + length;
    for (int i = 0; i < 4; ++i) file[at + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    at += 4;
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  const auto file = std::as_bytes(std::span(bytes, size));
  check_decoder(file, read_png_size, decode_png);
  check_decoder(with_checksums(file), read_png_size, decode_png);
  return 0;
}
