#include "trainyard/data/cache/cached_dataset.h"

#include <gtest/gtest.h>

#include "trainyard/data/testing/jpeg_dataset.h"

namespace trainyard::data::cached_dataset_test {
namespace {

constexpr int64_t kSize = JpegDataset::kSize;

void expect_all(const Dataset& dataset) {
  const JpegDataset plain;
  for (int64_t i = 0; i < kSize; ++i) {
    const Record record = dataset.read(i).value(), expected = plain.read(i).value();
    EXPECT_EQ(record.encoding, Encoding::kJpeg);
    EXPECT_EQ(record.bytes, expected.bytes) << i;
    EXPECT_EQ(record.label, expected.label);
    EXPECT_EQ(record.boxes.size(), 1u);
    EXPECT_EQ(record.where, expected.where);
  }
}

TEST(CachedDataset, EachRecordIsReadOnce) {
  const auto source = std::make_shared<JpegDataset>();
  const CachedDataset dataset(source, 1'000'000);
  for (int epoch = 0; epoch < 3; ++epoch) expect_all(dataset);
  EXPECT_EQ(source->reads, kSize);
  EXPECT_EQ(dataset.label_count(), source->label_count());
}

TEST(CachedDataset, WhatDoesNotFitIsReadAgain) {
  const auto source = std::make_shared<JpegDataset>();
  int64_t first_three = 0;
  for (int i = 0; i < 3; ++i) first_three += static_cast<int64_t>(source->read(i).value().bytes.size());
  source->reads = 0;
  const CachedDataset dataset(source, first_three);
  testing::internal::CaptureStderr();
  for (int epoch = 0; epoch < 3; ++epoch) expect_all(dataset);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(source->reads, kSize + 2 * (kSize - 3));
  const size_t warning = log.find("do not fit");
  EXPECT_NE(warning, std::string::npos) << log;
  EXPECT_EQ(log.find("do not fit", warning + 1), std::string::npos) << "told more than once";
}

TEST(CachedDataset, TheLimitIsToldInMebibytes) {
  class LargeRecords : public Dataset {
   public:
    int64_t size() const override { return 2; }
    int64_t label_count() const override { return 1; }
    core::Result<Record> read(int64_t /*index*/) const override {
      Record record;
      record.bytes.resize(size_t{3} << 20);
      return record;
    }
  };
  const CachedDataset dataset(std::make_shared<LargeRecords>(), int64_t{5} << 20);
  testing::internal::CaptureStderr();
  for (int64_t i = 0; i < 2; ++i) EXPECT_TRUE(dataset.read(i).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the records do not fit into 5 MiB of memory"), std::string::npos) << log;
}

// Two threads may have read the same one.
TEST(RecordMemory, ARecordThatIsKeptTwiceCountsOnce) {
  Record record;
  record.bytes.resize(100);
  RecordMemory memory(3, 200);
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(memory.keep(0, record));
  EXPECT_TRUE(memory.keep(1, record));
  EXPECT_NE(memory.find(1), nullptr);
  EXPECT_FALSE(memory.keep(2, record));
  EXPECT_TRUE(memory.keep(2, record)) << "told once";
  EXPECT_EQ(memory.find(2), nullptr);
}

// A disk may have recovered.
TEST(CachedDataset, ErrorsAreNotKept) {
  class Recovering : public JpegDataset {
   public:
    core::Result<Record> read(int64_t index) const override {
      if (reads++ == 0) return core::Error(core::ErrorCode::kIo, "busy");
      return JpegDataset::read(index);
    }
  };
  const CachedDataset dataset(std::make_shared<Recovering>(), 1'000'000);
  EXPECT_FALSE(dataset.read(3).ok());
  EXPECT_EQ(dataset.read(3).value().label, 4);
}

TEST(CachedDataset, TheDefaultLimitLeavesMemory) {
  EXPECT_GT(default_record_cache_bytes(), int64_t{1} << 20);
}

}  // namespace
}  // namespace trainyard::data::cached_dataset_test
