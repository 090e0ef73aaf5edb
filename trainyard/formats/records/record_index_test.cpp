#include "trainyard/formats/records/record_index.h"

#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/formats/testing/hostile_input.h"

namespace trainyard::formats::record_index_test {
namespace {

TEST(RecordIndex, SaysWhereTheRecordsAre) {
  const RecordIndex index = parse_record_index("0 21\n21 16\n37 316\n");
  ASSERT_EQ(index.size(), 3U);
  EXPECT_EQ(index.span(0), (RecordSpan{0, 5}));
  EXPECT_EQ(index.span(1), (RecordSpan{21, 0}));
  EXPECT_EQ(index.span(2), (RecordSpan{37, 300}));
  EXPECT_EQ(index.file_size(), 353U);
  EXPECT_EQ(format_record_index(index), "0 21\n21 16\n37 316\n");
  EXPECT_EQ(format_record_index(RecordIndex({{0, 5}, {21, 0}, {37, 300}})), "0 21\n21 16\n37 316\n");
  const RecordIndexSummary summary = summarize_record_index("0 21\n21 16\n37 316");
  EXPECT_EQ(summary.records, 3U);
  EXPECT_EQ(summary.file_size, 353U);
  EXPECT_EQ(parse_record_index("").size(), 0U);
  EXPECT_EQ(summarize_record_index("").records, 0U);
}

TEST(RecordIndex, RefusesOtherFilesWithTheLine) {
  for (const char* text : {"0\n", "0 x\n", "0 21 3\n", "0  21\n", "-1 21\n", "0 15\n", "\n", "0 21\r\n",
                           "0 99999999999999999999\n", "18446744073709551615 21\n"}) {
    EXPECT_EQ(core::code_of([&] { parse_record_index(text); }), core::ErrorCode::kCorruptData) << text;
    EXPECT_EQ(core::code_of([&] { summarize_record_index(text); }), core::ErrorCode::kCorruptData) << text;
  }
  EXPECT_EQ(core::message_of([] { parse_record_index("0 21\n22 20\n"); }, core::ErrorCode::kCorruptData),
            "index of TFRecords is malformed: line 2: expected a record at offset 21, got '22 20'; write it again with "
            "trainyard data index");
  for (const auto& read : std::vector<std::function<void()>>{[] { parse_record_index("0 21\n21 15\n"); },
                                                             [] { summarize_record_index("0 21\n21 15\n"); }}) {
    EXPECT_EQ(core::message_of(read, core::ErrorCode::kCorruptData),
              "index of TFRecords is malformed: line 2: expected offset and size, at least 16, got '21 15'; write it "
              "again with trainyard data index");
  }
}

TEST(RecordIndex, DamagedOnesGiveAnIndexOrAnError) {
  for_each_mutation("0 21\n21 16\n37 316\n", 4000, [](const std::string& damaged) {
    expect_value_or_error([&] { parse_record_index(damaged); });
    expect_value_or_error([&] { summarize_record_index(damaged); });
  });
}

TEST(RecordIndex, WritesWhatDaliWrites) {
  const auto directory = core::shared_data("imagenet_sample");
  if (!directory) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  core::FileSystem& files = core::local_file_system();
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"}) {
    const std::string golden = files.read_file(fmt::format("{}/idx/{}.idx", *directory, name));
    const auto shard = files.open_read(core::join_path(*directory, name));
    EXPECT_EQ(format_record_index(RecordIndex(index_tfrecord(*shard))), golden);
    EXPECT_EQ(parse_record_index(golden).file_size(), shard->size());
  }
}

TEST(RecordIndex, ShowsWhatALineHoldsOfOthers) {
  const auto problem = [](const std::string& text) {
    return core::message_of([&] { parse_record_index(text); }, core::ErrorCode::kCorruptData);
  };
  const std::string begin = "index of TFRecords is malformed: line 1: expected ",
                    end = "; write it again with trainyard data index";
  for (const size_t length : {60U, 61U}) {
    EXPECT_EQ(problem(std::string(length, 'x')),
              begin + "offset and size, at least 16, got '" + std::string(60, 'x') + "'" + end);
  }
  EXPECT_EQ(problem("5 21\n"), begin + "a record at offset 0, got '5 21'" + end);
  EXPECT_EQ(summarize_record_index("0 16").file_size, 16U) << "the shortest record";
}

}  // namespace
}  // namespace trainyard::formats::record_index_test
