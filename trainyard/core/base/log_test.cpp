#include "trainyard/core/base/log.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/threads/thread.h"

namespace trainyard::core::log_test {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override {
    log::set_level(log::Level::kInfo);
    log::set_origin("");
  }
  static std::string captured() { return testing::internal::GetCapturedStderr(); }
};

TEST_F(LogTest, LineFormat) {
  log::info("read {} shards of {:.1f} MB", 3, 1.25);
  log::warning("slow");
  log::error("{} failed", "disk");
  const std::string text = captured();
  // No colours: the test's stderr is not a terminal.
  const std::string time = "[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}";
  EXPECT_THAT(text, testing::MatchesRegex(time + " info read 3 shards of 1\\.2 MB\n" + time + " warning slow\n" + time +
                                          " error disk failed\n"));
}

TEST_F(LogTest, LevelsFilter) {
  log::debug("not shown: information is the default");
  log::set_level(log::Level::kError);
  log::warning("not shown");
  log::error("shown once");
  log::set_level(log::Level::kOff);
  log::error("not shown");
  log::set_level(log::Level::kDebug);
  log::debug("shown again");
  const std::string text = captured();
  EXPECT_EQ(text.find("not shown"), std::string::npos) << text;
  EXPECT_NE(text.find("shown once"), std::string::npos);
  EXPECT_NE(text.find("debug shown again"), std::string::npos);
}

TEST_F(LogTest, OriginPrefixesMessagesLiterally) {
  log::set_origin("rank 3 %v");
  log::info("ready {}%", 100);
  EXPECT_NE(captured().find("info rank 3 %v: ready 100%\n"), std::string::npos);
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back(ThreadOptions{.name = "log"}, [] {
        for (int line = 0; line < 200; ++line) log::info("{}", std::string(100, 'x'));
      });
    }
  }
  const std::string text = captured();
  const auto whole = testing::MatchesRegex("[0-9:.]{12} info x{100}");
  size_t lines = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++lines) {
    EXPECT_THAT(text.substr(begin, end - begin), whole);
  }
  EXPECT_EQ(lines, 600u);
}

TEST_F(LogTest, EachLevelShowsItselfAndWhatIsMoreImportant) {
  using log::Level;
  const std::pair<Level, std::string> levels[] = {{Level::kDebug, "debug"},
                                                  {Level::kInfo, "info"},
                                                  {Level::kWarning, "warning"},
                                                  {Level::kError, "error"},
                                                  {Level::kOff, "off"}};
  for (const auto& [level, name] : levels) {
    log::set_level(level);
    EXPECT_TRUE(log::set_level(level) == level) << name << ": it tells the level of before";
    log::set_origin(name);
    log::debug("1");
    log::info("2");
    log::warning("3");
    log::error("4");
  }
  std::istringstream lines(captured());
  std::string shown;
  for (std::string time, level, rest; lines >> time >> level && std::getline(lines, rest);)
    shown += level + rest + "\n";
  EXPECT_EQ(shown,
            "debug debug: 1\ninfo debug: 2\nwarning debug: 3\nerror debug: 4\n"
            "info info: 2\nwarning info: 3\nerror info: 4\n"
            "warning warning: 3\nerror warning: 4\n"
            "error error: 4\n");
}

}  // namespace
}  // namespace trainyard::core::log_test
