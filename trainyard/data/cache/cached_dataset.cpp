#include "trainyard/data/cache/cached_dataset.h"

#include <algorithm>

#include "trainyard/core/base/log.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/system_files.h"

namespace trainyard::data {

core::Result<Record> CachedDataset::read(int64_t index) const {
  if (const auto kept = memory_.find(index)) return *kept;
  auto record = source().read(index);
  if (record.ok() && !memory_.keep(index, record.value())) {
    core::log::warning(
        "the records do not fit into {} MiB of memory: those beyond are read again in each epoch; --record_cache_mib "
        "allows more",
        limit_ >> 20);
  }
  return record;
}

int64_t default_record_cache_bytes() {
  uint64_t bytes = core::memory_info_bytes("MemAvailable");
  if (const auto limit = core::cgroup_limits().memory_bytes) bytes = std::min(bytes, *limit);
  return static_cast<int64_t>(bytes / 2);
}

}  // namespace trainyard::data
