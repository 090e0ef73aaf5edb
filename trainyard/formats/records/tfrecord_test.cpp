#include "trainyard/formats/records/tfrecord.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::tfrecord_test {
namespace {

std::string write_records(const std::vector<std::string>& records) {
  const core::TempDir directory;
  TfRecordWriter writer(core::local_file_system().open_write(directory.file("records")));
  for (const std::string& record : records) writer.write(record);
  writer.close();
  return core::local_file_system().read_file(directory.file("records"));
}

std::vector<std::string> read_records(std::string_view content) {
  const MemoryFile file(content);
  TfRecordReader reader(file);
  std::vector<std::string> records;
  for (std::string record; reader.next(record);) records.push_back(record);
  EXPECT_EQ(reader.offset(), content.size());
  return records;
}

const std::vector<std::string> kRecords = {"first", "", std::string(300, 'x'), std::string("\0\1\2", 3)};

// From tools/golden/make_tf_example.py.
TEST(TfRecord, WritesTheGoldenBytes) {
  EXPECT_EQ(write_records({"abc"}), std::string("\x03\x00\x00\x00\x00\x00\x00\x00\xb0\x99\x49\x0e"
                                                "abc"
                                                "\x6e\x57\xf1\x21",
                                                19));
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5U);
}

TEST(TfRecord, ReadsWhatItWrote) {
  const std::string content = write_records(kRecords);
  EXPECT_EQ(read_records(content), kRecords);
  EXPECT_EQ(read_records(""), std::vector<std::string>{});

  const MemoryFile file(content);
  const std::vector<RecordSpan> spans = index_tfrecord(file);
  EXPECT_EQ(spans, (std::vector<RecordSpan>{{0, 5}, {21, 0}, {37, 300}, {353, 3}}));
  EXPECT_EQ(file.longest_read(), 12U) << "the index reads headers only";
  std::string buffer;
  for (const size_t i : {2, 0, 3, 1}) EXPECT_EQ(read_tfrecord(file, spans[i], buffer).value(), kRecords[i]);
}

TEST(TfRecord, EveryTruncationIsCorruptData) {
  const std::string content = write_records(kRecords);
  const MemoryFile whole(content);
  const std::vector<RecordSpan> spans = index_tfrecord(whole);
  for_each_truncation(content, [&](std::string_view part) {
    const bool between_records =
        std::any_of(spans.begin(), spans.end(), [&](const RecordSpan& span) { return span.offset == part.size(); });
    const MemoryFile file(part);
    if (between_records) {
      EXPECT_LT(index_tfrecord(file).size(), kRecords.size());
      return;
    }
    for (const bool indexed : {false, true}) {
      try {
        if (indexed) {
          index_tfrecord(file);
        } else {
          read_records(part);
        }
        ADD_FAILURE() << "accepted " << part.size() << " bytes";
      } catch (const core::Error& error) {
        EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
        EXPECT_NE(error.detail().where.find("memory at offset "), std::string::npos) << error.what();
        EXPECT_FALSE(error.detail().remedy.empty());
      }
    }
    std::string buffer;
    EXPECT_FALSE(read_tfrecord(file, spans.back(), buffer).ok());
  });
}

TEST(TfRecord, EveryFlippedBitIsCorruptData) {
  const std::string content = write_records({"first", "second"});
  for (size_t bit = 0; bit < content.size() * 8; ++bit) {
    std::string damaged = content;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(read_records(damaged), core::Error) << bit;
  }
}

TEST(TfRecord, AFlippedBitInOneRecordLeavesTheOthers) {
  std::string content = write_records({"first", "second", "third"});
  content[21 + 12] ^= 1;  // the 's' of "second"
  const MemoryFile file(content);
  const std::vector<RecordSpan> spans = index_tfrecord(file);
  ASSERT_EQ(spans.size(), 3U);
  std::string buffer;
  EXPECT_EQ(read_tfrecord(file, spans[0], buffer).value(), "first");
  const auto damaged = read_tfrecord(file, spans[1], buffer);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().detail().problem, "checksum of the record's data differs");
  EXPECT_EQ(damaged.error().detail().where, "memory at offset 21");
  EXPECT_EQ(read_tfrecord(file, spans[2], buffer).value(), "third");
}

// A length with a good checksum is still not believed: nothing near it is read or allocated.
TEST(TfRecord, AnEnormousLengthIsRefusedBeforeAllocation) {
  for (const uint64_t length : {uint64_t{1} << 60, ~uint64_t{0}, ~uint64_t{0} - 15, uint64_t{5}}) {
    std::string content;
    append_little_endian(content, length);
    append_little_endian(content, masked_crc32c(content));
    content += "1234";
    content += "----";
    const MemoryFile file(content);
    try {
      index_tfrecord(file);
      ADD_FAILURE() << "accepted a length of " << length;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_EQ(
          std::string(error.what()),
          fmt::format("record is longer than the rest of the file: memory at offset 0: expected {} bytes of data, "
                      "got 4; copy or write the file again",
                      length));
    }
    std::string buffer;
    EXPECT_FALSE(read_tfrecord(file, {0, length}, buffer).ok());
    EXPECT_LE(buffer.capacity(), 64U);
    EXPECT_LE(file.longest_read(), 12U);
  }
}

TEST(TfRecord, ASpanThatIsNotOfThisFileIsCorruptData) {
  const MemoryFile file(write_records(kRecords));
  std::string buffer;
  for (const RecordSpan span : {RecordSpan{0, 4}, RecordSpan{1, 5}, RecordSpan{1000, 5}, RecordSpan{~uint64_t{0}, 5}}) {
    const auto record = read_tfrecord(file, span, buffer);
    ASSERT_FALSE(record.ok());
    EXPECT_EQ(record.error().code(), core::ErrorCode::kCorruptData);
  }
  EXPECT_EQ(read_tfrecord(file, {0, 4}, buffer).error().detail().problem,
            "record has another length than its index says");
}

TEST(TfRecord, SaysWhatIsMissingAndWhere) {
  const auto message = [](const std::string& content, RecordSpan span) {
    const MemoryFile file(content);
    std::string buffer;
    return core::message_of([&] { read_tfrecord(file, span, buffer).value(); }, core::ErrorCode::kCorruptData);
  };
  const auto index_message = [](const std::string& content) {
    const MemoryFile file(content);
    return core::message_of([&] { index_tfrecord(file); }, core::ErrorCode::kCorruptData);
  };
  const std::string content = write_records({"first", "abc"});
  EXPECT_THAT(index_message(content.substr(0, 24)),
              core::Says("header of a record: memory at offset 21: expected 12 bytes, got 3"));
  EXPECT_THAT(index_message(content.substr(0, 21 + 15)),
              core::Says("rest of the file: memory at offset 21: expected 3 bytes of data, got 0"));
  EXPECT_THAT(index_message(content.substr(0, 21 + 18)),
              core::Says("rest of the file: memory at offset 21: expected 3 bytes of data, got 2"));
  EXPECT_THAT(message(content.substr(0, 21 + 18), {21, 3}),
              core::Says("memory at offset 21: expected 3 bytes of data, got a file of 39 bytes"));
  EXPECT_THAT(message(content, {0, 4}), core::Says("index says: memory at offset 0: expected 4 bytes, got 5"));
  std::string damaged = content;
  damaged.back() = '\x22';  // was 0x21
  EXPECT_THAT(message(damaged, {21, 3}),
              core::Says("data differs: memory at offset 21: expected masked crc32c 0x22f1576e, got 0x21f1576e"));
}

TEST(TfRecord, DamagedFilesGiveRecordsOrErrors) {
  const std::string content = write_records(kRecords);
  int errors = 0;
  for_each_mutation(content, 4000, [&](const std::string& damaged) {
    try {
      const MemoryFile file(damaged);
      TfRecordReader reader(file);
      for (std::string record; reader.next(record);) {
      }
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      ++errors;
    }
  });
  EXPECT_GT(errors, 3500);
}

TEST(TfRecord, ImageNetSampleAgreesWithItsIndexFiles) {
  const auto directory = core::shared_data("imagenet_sample");
  if (!directory) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  size_t records = 0;
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"}) {
    const auto file = core::local_file_system().open_read(core::join_path(*directory, name));
    std::string index;
    std::string buffer;
    for (const RecordSpan span : index_tfrecord(*file)) {
      index += fmt::format("{} {}\n", span.offset, span.length + kTfRecordFrameBytes);
      EXPECT_TRUE(read_tfrecord(*file, span, buffer).ok());
      ++records;
    }
    EXPECT_EQ(index, core::local_file_system().read_file(fmt::format("{}/idx/{}.idx", *directory, name)));
  }
  EXPECT_EQ(records, 300U);
}

}  // namespace
}  // namespace trainyard::formats::tfrecord_test
