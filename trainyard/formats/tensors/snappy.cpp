#include "trainyard/formats/tensors/snappy.h"

#include <cstdint>

#include <fmt/format.h>

#include "trainyard/formats/tensors/varint.h"

namespace trainyard::formats {
namespace {

// A copy with an offset of two bytes has three bytes and stands for at most 64: no element expands more.
constexpr uint64_t kLargestExpansion = 22;

core::Error malformed(size_t offset, std::string_view what) {
  return {core::ErrorCode::kCorruptData,
          {.problem = fmt::format("compressed bytes are malformed: {}", what),
           .where = fmt::format("offset {} of a Snappy block", offset)}};
}

// The low two bits of an element's first byte.
enum Tag : uint8_t { kLiteral = 0, kCopy1 = 1, kCopy2 = 2, kCopy4 = 3 };

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return value;
}

}  // namespace

core::Result<std::string> decompress_snappy(std::string_view compressed) {
  std::string_view left = compressed;
  const auto at = [&] { return compressed.size() - left.size(); };
  const std::optional<uint64_t> length = take_varint(left);
  if (!length) return malformed(0, "no length");
  if (*length > compressed.size() * kLargestExpansion) {
    return malformed(0, fmt::format("{} bytes cannot expand to {}", compressed.size(), *length));
  }
  std::string out;
  out.reserve(*length);
  while (!left.empty()) {
    const auto first = static_cast<uint8_t>(left.front());
    left.remove_prefix(1);
    const auto tag = static_cast<Tag>(first & 3U);
    uint64_t count = uint64_t{1} + (first >> 2);
    const size_t more = tag != kLiteral ? (tag == kCopy1 ? 1 : tag == kCopy2 ? 2 : 4) : count > 60 ? count - 60 : 0;
    if (left.size() < more) return malformed(at(), "an element is cut");
    const uint32_t number = little_endian(left.substr(0, more));
    left.remove_prefix(more);
    if (tag == kLiteral) {
      if (more > 0) count = uint64_t{1} + number;
      if (left.size() < count) return malformed(at(), "a literal is cut");
      if (*length - out.size() < count) return malformed(at(), "more bytes than the length says");
      out.append(left.substr(0, count));
      left.remove_prefix(count);
      continue;
    }
    uint64_t distance = number;
    if (tag == kCopy1) {
      count = uint64_t{4} + (first >> 2 & 7U);
      distance |= static_cast<uint64_t>(first >> 5U) << 8;
    }
    if (distance == 0 || distance > out.size()) return malformed(at(), "a copy begins before the block");
    if (*length - out.size() < count) return malformed(at(), "more bytes than the length says");
    for (; count > 0; --count) out.push_back(out[out.size() - distance]);  // may copy what it has just written
  }
  if (out.size() != *length) return malformed(at(), "fewer bytes than the length says");
  return out;
}

}  // namespace trainyard::formats
