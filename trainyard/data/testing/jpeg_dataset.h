// A data set without files, for tests of code that reads one.
#pragma once

#include <atomic>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data {

// JPEGs of different sizes; counts how often each is read. Sample 5 can be broken.
class JpegDataset : public Dataset {
 public:
  static constexpr int64_t kSize = 12;
  explicit JpegDataset(bool broken = false) : broken_(broken) {}
  int64_t size() const override { return kSize; }
  core::Result<Record> read(int64_t index) const override {
    ++reads;
    Record record;
    record.bytes = encode_jpeg(noisy_image(20 + static_cast<int>(index), 30, index + 1));
    if (broken_ && index == 5) record.bytes.resize(100);
    record.label = index + 1;
    record.boxes = {{0.1F, 0.2F, 0.9F, 0.8F}};
    record.where = "shard-0";
    return record;
  }
  int64_t label_count() const override { return kSize + 1; }
  mutable std::atomic<int> reads{0};

 private:
  bool broken_;
};

}  // namespace trainyard::data
