#include "trainyard/formats/tensors/snappy.h"

#include <gtest/gtest.h>

#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/sstable_builder.h"

namespace trainyard::formats::snappy_test {
namespace {

using namespace std::string_literals;

std::string plain(const std::string& compressed) {
  core::Result<std::string> result = decompress_snappy(compressed);
  return result.ok() ? result.value() : "error: " + result.error().detail().problem;
}

// What TensorFlow 2.21 makes of "abcabcabcabc" twenty times (CompressElement).
TEST(Snappy, ReadsWhatTensorFlowCompresses) {
  std::string expected;
  for (int i = 0; i < 80; ++i) expected += "abc";
  EXPECT_EQ(plain("\360\001\010abc\376\003\000\376\003\000\376\003\000\262\003\000"s), expected);
}

// The elements of google/snappy's format_description.txt.
TEST(Snappy, ReadsEachKindOfElement) {
  EXPECT_EQ(plain("\0"s), "");
  EXPECT_EQ(plain("\3\x08xyz"), "xyz");
  EXPECT_EQ(plain(varint_of(61) + "\xf0\x3c" + std::string(61, 'a')), std::string(61, 'a'));
  EXPECT_EQ(plain(varint_of(300) + "\xf4\x2b\x01" + std::string(300, 'b')), std::string(300, 'b'));
  EXPECT_EQ(plain(varint_of(70) + "\xf8\x45\0\0"s + std::string(70, 'c')), std::string(70, 'c'));
  EXPECT_EQ(plain(varint_of(70) + "\xfc\x45\0\0\0"s + std::string(70, 'd')), std::string(70, 'd'));
  EXPECT_EQ(plain("\x08\x0cwxyz\x01\x04"), "wxyzwxyz");       // 4 bytes from 4 behind
  EXPECT_EQ(plain("\x0b\x0cwxyz\x0d\x01"), "wxyzzzzzzzz");    // 7 bytes, each of the one before it
  EXPECT_EQ(plain("\x06\x0cwxyz\x06\x03\0"s), "wxyzxy");      // an offset of 2 bytes
  EXPECT_EQ(plain("\x06\x0cwxyz\x07\x02\0\0\0"s), "wxyzyz");  // an offset of 4 bytes
  // An offset of 11 bits: 0x101.
  const std::string far = "Q" + std::string(256, 'r');
  EXPECT_EQ(plain(varint_of(261) + "\xf4\0\1"s + far + "\x21\x01"), far + "Qrrr");
}

TEST(Snappy, RefusesWhatIsMalformed) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no length"},
      {"\x04\x0cwxy", "a literal is cut"},
      {"\x03\x0cwxyz", "more bytes than the length says"},
      {"\x05\x0cwxyz", "fewer bytes than the length says"},
      {"\x08\x0cwxyz\x01\x05", "a copy begins before the block"},
      {"\x08\x0cwxyz\x01\0"s, "a copy begins before the block"},
      {"\x07\x0cwxyz\x01\x04", "more bytes than the length says"},
      {"\x08\x0cwxyz\x01", "an element is cut"},
      {"\x20\xf4\x10", "an element is cut"},
      {"\xff\xff\xff\xff\x0f\x00"s, "6 bytes cannot expand to 4294967295"},
  };
  for (const auto& [bytes, problem] : cases) {
    EXPECT_EQ(plain(bytes), "error: compressed bytes are malformed: " + problem);
  }
}

TEST(Snappy, SaysWhereTheBytesAreMalformed) {
  const auto place = [](const std::string& compressed) { return decompress_snappy(compressed).error().detail().where; };
  EXPECT_EQ(place(""), "offset 0 of a Snappy block");
  EXPECT_EQ(place("\xff\xff\xff\xff\x0f\x00"s), "offset 0 of a Snappy block");
  EXPECT_EQ(place("\x04\x0cwxy"), "offset 2 of a Snappy block");
  EXPECT_EQ(place("\x03\x0cwxyz"), "offset 2 of a Snappy block");
  EXPECT_EQ(place("\x05\x0cwxyz"), "offset 6 of a Snappy block");
  EXPECT_EQ(place("\x08\x0cwxyz\x01"), "offset 7 of a Snappy block");
  EXPECT_EQ(place("\x08\x0cwxyz\x01\x05"), "offset 8 of a Snappy block");
}

TEST(Snappy, AnswersDamageWithAnError) {
  const std::string good =
      "\x1b\x0cwxyz\x0d\x01\x06\x03\0\x07\x02\0\0\0\x20"
      "123456789"s;
  for_each_truncation(good, [](std::string_view part) { EXPECT_FALSE(decompress_snappy(part).ok()); });
  for_each_mutation(good, 20000, [](const std::string& bytes) {
    core::Result<std::string> result = decompress_snappy(bytes);
    EXPECT_TRUE(!result.ok() || result.value().size() <= 22 * bytes.size());
  });
}

TEST(Snappy, BytesExpandToAtMost22TimesAsMany) {
  const std::string malformed = "error: compressed bytes are malformed: ", four = "\x0cwxyz";
  EXPECT_EQ(plain(varint_of(7 * 22) + four), malformed + "fewer bytes than the length says");
  EXPECT_EQ(plain(varint_of(7 * 22 + 1) + four), malformed + "7 bytes cannot expand to 155");
}

}  // namespace
}  // namespace trainyard::formats::snappy_test
