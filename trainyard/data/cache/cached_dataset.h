// A data set whose records are read once and kept in memory as they are stored: JPEGs stay compressed
// (--datasets_use_caching; decoded_dataset.h keeps images that are decoded).
#pragma once

#include <memory>
#include <utility>

#include "trainyard/data/cache/dataset_around.h"
#include "trainyard/data/cache/record_memory.h"

namespace trainyard::data {

class CachedDataset : public DatasetAround {
 public:
  // `limit`: bytes of images kept at most; records beyond it are read again each time, and a warning says so once.
  CachedDataset(std::shared_ptr<const Dataset> source, int64_t limit)
      : DatasetAround(std::move(source)), limit_(limit), memory_(size(), limit) {}

  // A record that cannot be read is not kept: the next read() tries again.
  core::Result<Record> read(int64_t index) const override;

 private:
  const int64_t limit_;
  mutable RecordMemory memory_;
};

// For a cache without a limit of its own: half of what the machine has free now, or of what the control group allows,
// whichever is less.
int64_t default_record_cache_bytes();

}  // namespace trainyard::data
