#include "trainyard/parallel/launch/launch_messages.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::launch_messages_test {
namespace {

template <typename Message>
Message there_and_back(const Message& message) {
  return std::get<Message>(decode_message(encode_message(message)));
}

core::ErrorCode refusal_of(const core::Frame& frame) {
  return core::thrown_by([&] { decode_message(frame); }).code();
}

TEST(LaunchMessages, ComeBackAsTheyWereWritten) {
  const HelloMessage hello = there_and_back(HelloMessage{.token = "t", .rank = 2, .ranks = 3, .host = "node"});
  EXPECT_EQ(hello.token, "t");
  EXPECT_EQ(hello.rank, 2);
  EXPECT_EQ(hello.ranks, 3);
  EXPECT_EQ(hello.host, "node");
  there_and_back(StartMessage());
  EXPECT_EQ(there_and_back(SignalMessage{15}).signal, 15);
  const OutputMessage output = there_and_back(OutputMessage{.is_error = true, .lines = "a\nb\n"});
  EXPECT_TRUE(output.is_error);
  EXPECT_EQ(output.lines, "a\nb\n");
  const EndMessage end = there_and_back(EndMessage{{.kind = ProcessEnd::Kind::kNotStarted, .value = 3, .text = "why"}});
  EXPECT_EQ(end.end.kind, ProcessEnd::Kind::kNotStarted);
  EXPECT_EQ(end.end.value, 3);
  EXPECT_EQ(end.end.text, "why");
}

TEST(LaunchMessages, WithImpossibleNumbersAreRefused) {
  for (const LaunchMessage& message : std::initializer_list<LaunchMessage>{
           HelloMessage{.rank = 3, .ranks = 3}, HelloMessage{.rank = -1, .ranks = 3}, HelloMessage{.ranks = 0},
           HelloMessage{.ranks = kMostRanks + 1}, SignalMessage{0}, SignalMessage{65}, SignalMessage{-1},
           EndMessage{{.kind = ProcessEnd::Kind::kLost}}, EndMessage{{.kind = ProcessEnd::Kind::kExited, .value = 256}},
           OutputMessage{.lines = "no newline"}, OutputMessage{}}) {
    EXPECT_EQ(refusal_of(encode_message(message)), core::ErrorCode::kCorruptData);
  }
}

TEST(LaunchMessages, OfAnotherKindOrVersionOrLengthAreRefused) {
  core::Frame frame = encode_message(HelloMessage{});
  frame.body[0] = 2;
  EXPECT_EQ(refusal_of(frame), core::ErrorCode::kCorruptData);
  EXPECT_EQ(refusal_of({.kind = 6, .body = ""}), core::ErrorCode::kCorruptData);
  frame = encode_message(SignalMessage{15});
  frame.body += "x";
  EXPECT_EQ(refusal_of(frame), core::ErrorCode::kCorruptData);
}

// An agent sends what LineSplitter gives of one read at most.
TEST(LaunchMessages, HoldTheLongestLines) {
  const core::Frame frame = encode_message(OutputMessage{.lines = std::string((size_t{1} << 17) + 2, '\n')});
  EXPECT_LE(frame.body.size(), kLongestMessage);
}

}  // namespace
}  // namespace trainyard::parallel::launch_messages_test
