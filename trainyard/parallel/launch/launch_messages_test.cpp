#include "trainyard/parallel/launch/launch_messages.h"

#include <gmock/gmock.h>
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

std::string refusal_text(const core::Frame& frame) {
  return core::message_of([&] { decode_message(frame); }, core::ErrorCode::kCorruptData);
}

TEST(LaunchMessages, TellWhichNumbersThereMayBe) {
  EXPECT_THAT(refusal_text(encode_message(HelloMessage{.rank = 3, .ranks = 3})),
              core::Says("an impossible rank: expected 0 to 2, got 3"));
  EXPECT_THAT(refusal_text(encode_message(HelloMessage{.ranks = 4097})),
              core::Says("an impossible number of ranks: expected 1 to 4096, got 4097"));
  EXPECT_THAT(refusal_text(encode_message(SignalMessage{65})),
              core::Says("an impossible signal: expected 1 to 64, got 65"));
  EXPECT_THAT(refusal_text(encode_message(EndMessage{{.kind = ProcessEnd::Kind::kExited, .value = 256}})),
              core::Says("an impossible exit code: expected 0 to 255, got 256"));
  EXPECT_THAT(refusal_text({.kind = 6, .body = ""}), core::Says("no known kind: expected 1 to 5, got 6"));
}

TEST(LaunchMessages, HoldTheLargestNumbers) {
  EXPECT_EQ(there_and_back(HelloMessage{.rank = 4095, .ranks = 4096}).rank, 4095);
  EXPECT_EQ(there_and_back(SignalMessage{64}).signal, 64);
  EXPECT_EQ(there_and_back(SignalMessage{1}).signal, 1);
  EXPECT_EQ(there_and_back(EndMessage{{.kind = ProcessEnd::Kind::kExited, .value = 255}}).end.value, 255);
  EXPECT_FALSE(there_and_back(OutputMessage{.lines = "a\n"}).is_error);
}

}  // namespace
}  // namespace trainyard::parallel::launch_messages_test
