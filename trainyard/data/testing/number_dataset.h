// A data set without data, for tests of what moves samples.
#pragma once

#include <cstdint>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// Numbers as images: the label of sample i is i, without pixels.
class NumberDataset : public Dataset {
 public:
  explicit NumberDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  core::Result<Record> read(int64_t index) const override {
    Record record;
    record.label = index;
    return record;
  }
  int64_t label_count() const override { return size_; }

 private:
  int64_t size_;
};

}  // namespace trainyard::data
