// Writes the index files of TFRecord shards.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/file_system.h"

namespace trainyard::data {

struct IndexedShards {
  int64_t shards = 0, records = 0;
};

// For each shard NAME-of-NAME in `directory` the file NAME.idx in `output`, which is made: the bytes of DALI's
// tfrecord2idx. Throws kNotFound when there is no shard, kCorruptData where one cannot be indexed; the files of the
// others may then be there already.
IndexedShards write_index_files(const std::string& directory, const std::string& output,
                                core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::data
