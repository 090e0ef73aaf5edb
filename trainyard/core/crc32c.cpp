#include "trainyard/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trainyard::core {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;

// tables[k][b]: what byte b contributes when k further bytes follow it ("slicing by 8", Kounavis and Berry 2005).
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflectedPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

uint64_t load64(const std::byte* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    const uint64_t word = load64(bytes.data()) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

bool has_crc32c_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t crc = ~before;
  while (bytes.size() >= 8) {
    crc = _mm_crc32_u64(crc, load64(bytes.data()));
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<unsigned char>(byte));
  }
  return ~static_cast<uint32_t>(crc);
}

#else

bool has_crc32c_instruction() {
  return false;
}

uint32_t crc32c_instruction(std::span<const std::byte> bytes, uint32_t before) {
  return crc32c_portable(bytes, before);
}

#endif

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  return has_crc32c_instruction() ? crc32c_instruction(bytes, before) : crc32c_portable(bytes, before);
}

}  // namespace trainyard::core
