#include "trainyard/core/files/crc32c.h"

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

namespace {

// The instruction takes three cycles but a new one can start in each, so three parts of a block are summed at a time
// and their checksums joined, as in Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction"
// (2011).
constexpr size_t kPartBytes = 1024;

// tables[k][b]: the checksum register with byte k set to b, kPartBytes bytes of zero later.
using ZerosTables = std::array<std::array<uint32_t, 256>, 4>;

ZerosTables make_zeros_tables() {
  ZerosTables tables{};
  for (size_t k = 0; k < tables.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte << (8 * k);
      for (size_t i = 0; i < kPartBytes; ++i) value = (value >> 8) ^ kTables[0][value & 0xff];
      tables[k][byte] = value;
    }
  }
  return tables;
}

uint32_t after_part_of_zeros(const ZerosTables& tables, uint64_t crc) {
  return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
         tables[3][(crc >> 24) & 0xff];
}

}  // namespace

__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(std::span<const std::byte> bytes, uint32_t before) {
  static const ZerosTables zeros = make_zeros_tables();
  uint64_t crc = ~before;
  while (bytes.size() >= 3 * kPartBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    const std::byte* part = bytes.data();
    for (size_t i = 0; i < kPartBytes; i += 8) {
      crc = _mm_crc32_u64(crc, load64(part + i));
      second = _mm_crc32_u64(second, load64(part + kPartBytes + i));
      third = _mm_crc32_u64(third, load64(part + 2 * kPartBytes + i));
    }
    crc = after_part_of_zeros(zeros, after_part_of_zeros(zeros, crc) ^ second) ^ third;
    bytes = bytes.subspan(3 * kPartBytes);
  }
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
