#include "trainyard/parallel/launch/lines.h"

#include <gtest/gtest.h>

namespace trainyard::parallel::lines_test {
namespace {

TEST(LineSplitter, GivesWholeLinesOfPiecesOfAnySize) {
  const std::string text = "one\n\ntwo\nthree and no newline";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{5}, text.size()}) {
    LineSplitter splitter;
    std::string lines;
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string whole = splitter.take(std::string_view(text).substr(at, piece));
      EXPECT_TRUE(whole.empty() || whole.back() == '\n') << whole;
      lines += whole;
    }
    EXPECT_EQ(lines, "one\n\ntwo\n") << piece;
    EXPECT_EQ(splitter.finish(), "three and no newline\n");
    EXPECT_EQ(splitter.finish(), "");
  }
}

TEST(LineSplitter, BreaksALineThatIsTooLong) {
  LineSplitter splitter;
  std::string line(kLongestLine, 'x');
  EXPECT_EQ(splitter.take(line), "");
  line.push_back('\n');
  EXPECT_EQ(splitter.take("yz"), line);
  EXPECT_EQ(splitter.take("\n"), "yz\n");
}

TEST(LineSplitter, BreaksALineIntoAsManyAsItNeeds) {
  LineSplitter splitter;
  const std::string line(kLongestLine, 'x');
  EXPECT_EQ(splitter.take("one\ntwo"), "one\n");
  EXPECT_EQ(splitter.take(line + line), "two" + line.substr(3) + "\n" + line + "\n");
  EXPECT_EQ(splitter.finish(), "xxx\n");
}

TEST(WithPrefix, StandsInFrontOfEachLine) {
  EXPECT_EQ(with_prefix("[3] ", "a\nwithout an end"), "[3] a\n[3] without an end");
  EXPECT_EQ(with_prefix("[3] ", "a\n\nb\n"), "[3] a\n[3] \n[3] b\n");
  EXPECT_EQ(with_prefix("[3] ", ""), "");
}

}  // namespace
}  // namespace trainyard::parallel::lines_test
