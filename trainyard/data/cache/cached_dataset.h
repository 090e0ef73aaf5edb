// A data set whose records are read once and kept in memory as they are stored: JPEGs stay compressed
// (--datasets_use_caching; decoded_dataset.h keeps images that are decoded).
#pragma once

#include <memory>
#include <utility>

#include "trainyard/data/cache/dataset_decorator.h"
#include "trainyard/data/cache/record_memory.h"

namespace trainyard::data {

class CachedDataset : public DatasetDecorator {
 public:
  // Keeps at most `limit` bytes of images. Records beyond that are read again each time, and one warning says so.
  CachedDataset(std::shared_ptr<const Dataset> source, int64_t limit)
      : DatasetDecorator(std::move(source)), limit_(limit), memory_(size(), limit) {}

  // A record that cannot be read is not kept: the next read() tries again.
  core::Result<Record> read(int64_t index) const override;

 private:
  const int64_t limit_;
  mutable RecordMemory memory_;
};

// Returns the default limit: half of the machine's free memory, or half of what the control group allows, whichever is
// less.
int64_t default_record_cache_bytes();

}  // namespace trainyard::data
