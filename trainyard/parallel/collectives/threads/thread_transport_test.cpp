#include "trainyard/parallel/collectives/threads/thread_transport.h"

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::parallel::thread_transport_test {
namespace {

using core::Error, core::ErrorCode, std::chrono::milliseconds;

constexpr int kTag = 3;

TEST(ThreadTransport, MessagesOfALineArriveInTheirOrder) {
  ThreadMessages messages(2);
  const auto first = messages.transport(0), second = messages.transport(1);
  EXPECT_EQ(second->process(), 1);
  EXPECT_EQ(second->processes(), 2);
  const std::array<int, 3> sent = {7, 8, 9};
  std::array<int, 3> received = {};
  const auto later = second->receive(0, kTag, &received[0], sizeof(int));
  const auto last = second->receive(0, kTag, &received[1], sizeof(int));
  const auto other = second->receive(0, kTag + 1, &received[2], sizeof(int));
  EXPECT_FALSE(later->done());
  const auto send_7 = first->send(1, kTag, &sent[0], sizeof(int)), send_8 = first->send(1, kTag, &sent[1], sizeof(int)),
             send_9 = first->send(1, kTag + 1, &sent[2], sizeof(int));
  EXPECT_FALSE(last->done());  // it is the second one's turn after the first
  EXPECT_FALSE(send_7->done());
  EXPECT_TRUE(other->done());
  EXPECT_TRUE(later->done());
  EXPECT_TRUE(send_7->done());
  EXPECT_FALSE(send_8->done());
  EXPECT_TRUE(last->done());
  EXPECT_TRUE(send_8->done() && send_9->done());
  EXPECT_THAT(received, ::testing::ElementsAre(7, 8, 9));
}

TEST(ThreadTransport, AMessageThatDoesNotFitIsAnError) {
  ThreadMessages messages(2);
  const auto first = messages.transport(0), second = messages.transport(1);
  const std::array<int, 2> sent = {};
  int received = 0;
  const auto send = first->send(1, kTag, sent.data(), sizeof(sent));
  const auto receive = second->receive(0, kTag, &received, sizeof(int));
  EXPECT_THAT(core::message_of([&] { (void)receive->done(); }, ErrorCode::kInternal),
              ::testing::HasSubstr("longer than its receiver expects"));
}

TEST(ThreadTransport, WaitsEndAtChangesAndAtTheirTime) {
  ThreadMessages messages(2);
  const uint64_t seen = messages.changes();
  const auto now = [] { return std::chrono::steady_clock::now(); };
  EXPECT_FALSE(messages.wait_for_change(seen, now() + milliseconds(20)));
  core::Thread peer({.name = "peer"}, [&] { messages.fail(Error(ErrorCode::kIo, "first")); });
  EXPECT_TRUE(messages.wait_for_change(seen, now() + milliseconds(60'000)));
  peer.join();
  messages.fail(Error(ErrorCode::kIo, "second"));
  ASSERT_TRUE(messages.failure());
  EXPECT_STREQ(messages.failure()->what(), "first");
}

}  // namespace
}  // namespace trainyard::parallel::thread_transport_test
