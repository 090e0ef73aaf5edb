#include "trainyard/formats/records/csv.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::formats::csv_test {
namespace {

using core::ErrorCode;
using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(std::string_view text, std::vector<int64_t>* lines = nullptr) {
  Rows rows;
  read_csv(text, "table.csv", [&](CsvRow& row) {
    rows.push_back(row.fields);
    if (lines != nullptr) lines->push_back(row.line);
  });
  return rows;
}

// The examples of RFC 4180, section 2.
TEST(Csv, ReadsTheExamplesOfTheRfc) {
  EXPECT_EQ(rows_of("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n"), (Rows{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(rows_of("aaa,bbb,ccc\r\nzzz,yyy,xxx"), (Rows{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(rows_of("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx"), (Rows{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(rows_of("\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx"),
            (Rows{{"aaa", "b\r\nbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(rows_of("\"aaa\",\"b\"\"bb\",\"ccc\""), (Rows{{"aaa", "b\"bb", "ccc"}}));
}

TEST(Csv, KeepsBlanksAndEmptyFields) {
  EXPECT_EQ(rows_of("a, b ,\n,,\n\"\",\"\",\"\"\n"), (Rows{{"a", " b ", ""}, {"", "", ""}, {"", "", ""}}));
  EXPECT_EQ(rows_of(""), Rows{});
  EXPECT_EQ(rows_of("a\rb\n"), Rows{{"a\rb"}});
}

TEST(Csv, SkipsByteOrderMarkAndBlankLinesAndCountsLines) {
  std::vector<int64_t> lines;
  EXPECT_EQ(rows_of("\xEF\xBB\xBF"
                    "a,b\n\n\r\n\"1\n2\",3\n4,5\n\n",
                    &lines),
            (Rows{{"a", "b"}, {"1\n2", "3"}, {"4", "5"}}));
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 4, 6}));
}

TEST(Csv, RefusesWhatIsNoTable) {
  const auto refused = [](std::string_view text, const char* problem, const char* where) {
    EXPECT_THAT(core::message_of([&] { rows_of(text); }, ErrorCode::kCorruptData),
                core::Says(problem, where, "as RFC 4180 says"));
  };
  refused("a,b\n\"c,d\n", "does not end", "table.csv, line 2");
  refused("a,b\n\"c\"d,e\n", "text behind a quoted field", "line 2");
  refused("a,b\n\"c\"d,e\n", "line 2: expected a comma or the end of the line, got 'd'", "");
  refused("a,b\nc\"d,e\n", "a quote within a field", "line 2");
  refused("a,b\n\"1\n\",2\n3\n", "another number of fields", "line 4: expected 2, got 1");
  refused(std::string_view("a,b\n\0,2\n", 8), "null byte", "line 2");
}

TEST(Csv, SaysWhatIsWrongAndInWhichLine) {
  using std::string_literals::operator""s;
  const struct {
    std::string text, problem, place;
  } cases[] = {
      {"a,b\n\"c,d\n", "a quoted field does not end", "2: expected a closing quote"},
      {"a,b\nc\"d,e\n", "a quote within a field that does not begin with one", "2: expected the field in quotes"},
      {"a,b\n\nc\0d"s, "a null byte in a table", "3: expected text"},
      {"a,b\n\"c\n\0\",d"s, "a null byte in a table", "2: expected text"},
      {"\"a\nb\"c", "text behind a quoted field", "1: expected a comma or the end of the line, got 'c'"},
      {"a,b\n1,2,3\n", "a row of another number of fields than the first one", "2: expected 2, got 3"},
      {"a,b\n\"1\n\",2\n\n3\n", "a row of another number of fields than the first one", "5: expected 2, got 1"}};
  for (const auto& each : cases) {
    EXPECT_EQ(core::message_of([&] { rows_of(each.text); }, ErrorCode::kCorruptData),
              each.problem + ": table.csv, line " + each.place +
                  "; write the table with a program that quotes fields as RFC 4180 says");
  }
}

}  // namespace
}  // namespace trainyard::formats::csv_test
