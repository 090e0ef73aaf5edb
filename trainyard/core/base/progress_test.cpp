#include "trainyard/core/base/progress.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/base/log.h"

namespace trainyard::core::progress_test {
namespace {

std::string line(const std::string& label, int64_t total, int64_t done, const std::string& note, size_t width) {
  testing::internal::CaptureStderr();
  ProgressBar bar(label, total, /*enabled=*/true);
  bar.advance_to(done, note);
  std::string text = bar.line(width);
  bar.clear();
  testing::internal::GetCapturedStderr();
  return text;
}

TEST(ProgressBar, GoldenLines) {
  const std::map<int, std::string> lines = {{0, "train   0% [>                    ] 0/200"},
                                            {84, "train  42% [========>           ] 84/200"},
                                            {200, "train 100% [===================] 200/200"}};
  for (const auto& [done, text] : lines) EXPECT_EQ(line("train", 200, done, "", 40), text);
  EXPECT_EQ(line("train", 200, 84, "loss 2.1", 40), "train  42% [====>      ] 84/200 loss 2.1");
  EXPECT_EQ(line("train", 200, 100, "", 200), "train  50% [====================>                   ] 100/200");
}

TEST(ProgressBar, NarrowAndUnknown) {
  EXPECT_EQ(line("train", 200, 84, "", 20), "train  42% 84/200");
  EXPECT_EQ(line("train", 200, 84, "", 8), "train  4");
  EXPECT_EQ(line("read", 0, 1234, "shard 3", 80), "read 1234 shard 3");
  EXPECT_EQ(line("train", 200, 300, "", 20), "train 100% 300/200");
  // 100 % is said when all is done, not before.
  EXPECT_EQ(line("train", 1000, 999, "", 20), "train  99% 999/1000");
}

TEST(ProgressBar, WritesNothingWhenNotATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("train", 10);
    for (int i = 0; i <= 10; ++i) bar.advance_to(i, "note");
    bar.clear();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressBar, DrawsAtMostTenTimesASecondAndClears) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("train", 1000, /*enabled=*/true);
    for (int i = 0; i <= 1000; ++i) bar.advance_to(i);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.rfind("\r\x1b[Ktrain   0%", 0), 0u) << text;
  EXPECT_LT(text.size(), 10'000u);  // a few draws, not a thousand
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST(ProgressBar, ALineOfOnesOwnIsCutAtTheTerminalsWidth) {
  testing::internal::CaptureStderr();  // no terminal: 80 columns, one of which stays free
  {
    ProgressBar bar("train", 10, /*enabled=*/true);
    bar.show(std::string(100, 'x'));
    bar.show("not due yet");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "\r\x1b[K" + std::string(79, 'x') + "\r\x1b[K");
}

TEST(ProgressBar, MessagesEraseTheBarFirst) {
  testing::internal::CaptureStderr();
  ProgressBar bar("train", 10, /*enabled=*/true);
  bar.advance_to(1);
  log::info("message");
  const std::string text = testing::internal::GetCapturedStderr();
  const size_t erased = text.rfind("\r\x1b[K");
  EXPECT_GT(erased, 0u);
  EXPECT_EQ(text.find("train", erased), std::string::npos) << text;
  EXPECT_NE(text.find("info message\n", erased), std::string::npos) << text;
}

}  // namespace
}  // namespace trainyard::core::progress_test
