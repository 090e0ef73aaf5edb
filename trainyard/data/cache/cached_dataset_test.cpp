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
