// A data set whose records are read once and kept in memory as they are stored: JPEGs stay compressed
// (--datasets_use_caching; decoded_dataset.h keeps images that are decoded).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/data/dataset.h"
#include "trainyard/data/record_memory.h"

namespace trainyard::data {

class CachedDataset : public Dataset {
 public:
  // `limit`: bytes of images kept at most; records beyond it are read again each time, and a warning says so once.
  CachedDataset(std::shared_ptr<const Dataset> source, int64_t limit)
      : source_(std::move(source)), limit_(limit), memory_(source_->size(), limit) {}

  int64_t size() const override { return source_->size(); }
  // A record that cannot be read is not kept: the next read() tries again.
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return source_->label_count(); }
  int64_t first_label() const override { return source_->first_label(); }
  std::vector<std::string> label_names() const override { return source_->label_names(); }

 private:
  const std::shared_ptr<const Dataset> source_;
  const int64_t limit_;
  mutable RecordMemory memory_;
};

// Half of the memory that the machine, or the control group, has left now: for a cache without a limit of its own.
int64_t default_record_cache_bytes();

}  // namespace trainyard::data
