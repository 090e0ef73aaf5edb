#include "trainyard/core/base/base64.h"

#include <string_view>

#include <gtest/gtest.h>

namespace trainyard::core::base64_test {
namespace {

std::string encoded(std::string_view text) {
  return base64_text(std::as_bytes(std::span(text)));
}

// The test vectors of RFC 4648, section 10.
TEST(Base64, GivesTheTestVectorsOfItsStandard) {
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foo"), "Zm9v");
  EXPECT_EQ(encoded("foob"), "Zm9vYg==");
  EXPECT_EQ(encoded("fooba"), "Zm9vYmE=");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
}

TEST(Base64, HasTheLastTwoDigitsAndBytesAbove127) {
  EXPECT_EQ(encoded("\xfb\xff\xbf"), "+/+/");
  EXPECT_EQ(encoded("\xff\xff\xff"), "////");
}

}  // namespace
}  // namespace trainyard::core::base64_test
