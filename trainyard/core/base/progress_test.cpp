#include "trainyard/core/base/progress.h"

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/environment.h"

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
  EXPECT_EQ(line("train", 200, 84, "", 30), "train  42% [====>     ] 84/200") << "the shortest bar has ten columns";
  EXPECT_EQ(line("train", 200, 84, "", 29), "train  42% 84/200");
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

TEST(ProgressBar, AMessageThatIsNotShownLeavesTheBar) {
  testing::internal::CaptureStderr();
  ProgressBar bar("train", 10, /*enabled=*/true);
  bar.advance_to(1);
  log::debug("below the level");
  log::write(log::Level::kOff, "of no level");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.rfind("\r\x1b[K"), 0U) << text;
  EXPECT_EQ(text.find("level"), std::string::npos) << text;
  testing::internal::CaptureStderr();
  bar.clear();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "\r\x1b[K");
}

TEST(ProgressBar, OneThatIsOffLeavesAnotherOnTheScreen) {
  testing::internal::CaptureStderr();
  ProgressBar shown("train", 10, /*enabled=*/true);
  shown.advance_to(1);
  {
    ProgressBar off("read", 10, /*enabled=*/false);
    off.advance_to(1);
    off.clear();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.rfind("\r\x1b[K"), 0U) << text;
  testing::internal::CaptureStderr();
  shown.clear();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "\r\x1b[K");
}

// stderr is a terminal of so many columns while it lives; what is written there is not read.
class TerminalForTest {
 public:
  explicit TerminalForTest(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    const int terminal = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (terminal < 0) return;
    works_ = ::ioctl(terminal, TIOCSWINSZ, &size) == 0;
    before_ = ::dup(STDERR_FILENO);
    ::dup2(terminal, STDERR_FILENO);
    ::close(terminal);
  }
  TerminalForTest(const TerminalForTest&) = delete;
  TerminalForTest& operator=(const TerminalForTest&) = delete;
  ~TerminalForTest() {
    if (before_ >= 0) {
      ::dup2(before_, STDERR_FILENO);
      ::close(before_);
    }
    if (master_ >= 0) ::close(master_);
  }

  bool works() const { return works_; }

 private:
  int master_ = -1, before_ = -1;
  bool works_ = false;
};

TEST(ProgressBar, OneColumnOfTheTerminalStaysFree) {
  for (const auto& [columns, free] : {std::pair<unsigned short, size_t>{100, 99}, {1, 0}, {0, 79}}) {
    size_t found = 1000;
    bool works = false;
    {
      const TerminalForTest terminal(columns);
      works = terminal.works();
      found = ProgressBar::columns();
    }
    ASSERT_TRUE(works);
    EXPECT_EQ(found, free) << columns;
  }
}

TEST(ProgressBar, ATerminalThatIsDumbIsNone) {
  const auto is_terminal = [](const char* name) {
    const EnvironmentVariable term("TERM", name);
    const TerminalForTest terminal(80);
    return ProgressBar::stderr_is_terminal();
  };
  EXPECT_TRUE(is_terminal("xterm"));
  EXPECT_FALSE(is_terminal("dumb"));
  EXPECT_FALSE(is_terminal(""));
  const EnvironmentVariable term("TERM", "xterm");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(ProgressBar::stderr_is_terminal()) << "a file";
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace trainyard::core::progress_test
