#include "trainyard/core/files/crc32c.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace trainyard::core::crc32c_test {
namespace {

// By definition: one bit at a time.
uint32_t crc32c_by_bits(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

// RFC 3720, appendix B.4, and the customary check value.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string ascending(32, '\0');
  for (int i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cU);
}

TEST(Crc32c, AllWaysAgreeAtAnyLengthAndAlignment) {
  std::mt19937 random(1);
  std::string data(10'000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (int i = 0; i < 1000; ++i) {
    const size_t begin = random() % 64;
    const size_t length = i < 200 ? i : random() % (data.size() - begin);
    const auto bytes = std::as_bytes(std::span(data)).subspan(begin, length);
    const uint32_t expected = crc32c_by_bits(bytes);
    ASSERT_EQ(crc32c_portable(bytes), expected) << begin << " " << length;
    ASSERT_EQ(crc32c(bytes), expected);
    if (has_crc32c_instruction()) {
      ASSERT_EQ(crc32c_instruction(bytes), expected);
    }
    const size_t cut = length == 0 ? 0 : random() % length;
    ASSERT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), expected) << "in two parts";
    ASSERT_EQ(crc32c_portable(bytes.subspan(cut), crc32c_portable(bytes.first(cut))), expected);
  }
}

}  // namespace
}  // namespace trainyard::core::crc32c_test
