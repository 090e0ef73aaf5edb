// Keeps records in memory, by the number of their sample, up to a limit. Records that do not fit are not kept, and
// nothing is evicted for them, because an epoch reads every record once before it reads one twice.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// Thread-safe.
class RecordMemory {
 public:
  // Keeps at most `limit` bytes of images, encoded or decoded.
  RecordMemory(int64_t samples, int64_t limit) : limit_(limit), kept_(samples) {}

  // Returns null when the sample is not kept.
  std::shared_ptr<const Record> find(int64_t sample) const;
  // Keeps the record if it fits. Returns false when the memory is full and was not before: tell the user once.
  bool keep(int64_t sample, const Record& record);

 private:
  const int64_t limit_;
  mutable std::mutex mutex_;  // guards everything below
  int64_t used_ = 0;
  bool full_ = false;
  std::vector<std::shared_ptr<const Record>> kept_;  // by sample
};

}  // namespace trainyard::data
