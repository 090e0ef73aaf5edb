#include "trainyard/core/sockets/frame.h"

#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::core::frame_test {
namespace {

TEST(Frame, ComesBackFromPiecesOfAnySize) {
  const std::string body("with \0 and \xff", 12);
  const std::string bytes = encode_frame(3, body) + encode_frame(255, "") + encode_frame(1, std::string(100'000, 'x'));
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{13}, bytes.size()}) {
    FrameReader reader(100'000);
    std::vector<Frame> frames;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(std::string_view(bytes).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3U) << piece;
    EXPECT_EQ(frames[0].kind, 3);
    EXPECT_EQ(frames[0].body, body);
    EXPECT_EQ(frames[1].kind, 255);
    EXPECT_EQ(frames[1].body, "");
    EXPECT_EQ(frames[2].body.size(), 100'000U);
  }
}

TEST(Frame, HasTheBytesThatTheHeaderSays) {
  EXPECT_EQ(encode_frame(2, "ab"), std::string("TYRD\x02\0\0\0\x02\0\0\0ab", 14));
}

TEST(Frame, WhatIsNoneIsRefusedAtItsFirstWrongByte) {
  const auto refused = [](std::string bytes) {
    return thrown_by([&] {
      FrameReader reader(16);
      reader.feed(bytes);
      reader.next();
    });
  };
  for (const std::string& bytes : {std::string("G"), std::string("TYR "), std::string("TYRD\0\0\0\0\0\0\0\0", 12),
                                   std::string("TYRD\1\0\1\0\0\0\0\0", 12)}) {
    EXPECT_EQ(refused(bytes).code(), ErrorCode::kCorruptData) << bytes;
  }
  EXPECT_STREQ(refused("GET /").what(), "bytes that are no message: expected 54 59 52 44 (\"TYRD\"), got 47 45 54 20");
  EXPECT_STREQ(refused(std::string("TYRD\0\0\0\0\0\0\0\0", 12)).what(),
               "a message's header makes no sense: expected a kind from 1, then three zeros, got kind 0");
  EXPECT_STREQ(refused(std::string("TYRD\7\0\0\1\0\0\0\0", 12)).what(),
               "a message's header makes no sense: expected a kind from 1, then three zeros, got kind 7");
}

// Only the length is read of a body that is never sent.
TEST(Frame, ALongBodyIsRefusedByItsHeader) {
  FrameReader reader(16);
  reader.feed(encode_frame(1, std::string(16, 'x')));
  EXPECT_TRUE(reader.next());
  reader.feed(encode_frame(1, std::string(17, 'x')).substr(0, kFrameHeaderBytes));
  EXPECT_TRUE(says(thrown_by([&] { reader.next(); }), "expected at most 16 bytes, got 17"));
  reader.allow(17);
  EXPECT_FALSE(reader.next());
}

TEST(Frame, KindZeroIsNoMessage) {
  EXPECT_EQ(message_of([] { encode_frame(0, "abc"); }),
            "this is no message: expected a kind from 1, a body below 4 GiB, got kind 0, 3 bytes");
}

TEST(Body, ComesBackAsItWasWritten) {
  const std::string text("a\0b", 3);
  const std::string body =
      BodyWriter().number(-5).text(text).real(-0.1).number(std::numeric_limits<int64_t>::min()).text("").take();
  BodyReader reader(body);
  EXPECT_EQ(reader.number(), -5);
  EXPECT_EQ(reader.text(), text);
  EXPECT_EQ(reader.real(), -0.1);
  EXPECT_EQ(reader.number(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reader.text(), "");
  reader.end();
}

TEST(Body, ThatEndsTooEarlyOrTooLateIsRefused) {
  const std::string body = BodyWriter().text("abc").take();
  for (size_t size = 0; size < body.size(); ++size) {
    BodyReader reader(std::string_view(body).substr(0, size));
    EXPECT_EQ(message_of([&] { reader.text(); }, ErrorCode::kCorruptData),
              size < 8 ? fmt::format("a message ends within a number: expected 8 bytes, got {}", size)
                       : fmt::format("a message ends within a text: expected 3 bytes, got {}", size - 8));
  }
  const std::string longer = body + "x";
  BodyReader reader(longer);
  reader.text();
  EXPECT_EQ(message_of([&] { reader.end(); }, ErrorCode::kCorruptData),
            "a message is longer than its kind: expected its end, got 1 bytes");
}

TEST(Body, ALengthBelowZeroOrBeyondTheEndIsRefused) {
  for (const int64_t length : {int64_t{-1}, int64_t{4}, std::numeric_limits<int64_t>::max()}) {
    const std::string body = BodyWriter().number(length).take() + "abc";
    BodyReader reader(body);
    EXPECT_EQ(message_of([&] { reader.text(); }, ErrorCode::kCorruptData),
              fmt::format("a message ends within a text: expected {} bytes, got 3", length));
  }
}

}  // namespace
}  // namespace trainyard::core::frame_test
