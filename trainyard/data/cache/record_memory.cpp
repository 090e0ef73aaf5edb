#include "trainyard/data/cache/record_memory.h"

#include <utility>

namespace trainyard::data {

std::shared_ptr<const Record> RecordMemory::find(int64_t sample) const {
  const std::lock_guard lock(mutex_);
  return kept_[sample];
}

bool RecordMemory::keep(int64_t sample, const Record& record) {
  const auto bytes =
      static_cast<int64_t>(record.bytes.size() + (record.image == nullptr ? 0 : record.image->pixels.size()));
  const std::lock_guard lock(mutex_);
  if (kept_[sample] != nullptr) return true;
  if (used_ + bytes > limit_) return std::exchange(full_, true);
  used_ += bytes;
  kept_[sample] = std::make_shared<const Record>(record);
  return true;
}

}  // namespace trainyard::data
