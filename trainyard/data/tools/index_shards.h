// Writes the index files of a data set's TFRecord shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

struct IndexedShards {
  int64_t shards = 0, records = 0;
  std::vector<std::string> folders;  // where the index files are: one for each folder of shards, or `output` alone
};

// Writes for each shard NAME, a file called as train-00000-of-01024 with numbers around "-of-", in `directory` and in
// its folders of a subset (DIR/train, DIR/val, ...) the file NAME.idx: the bytes of DALI's tfrecord2idx. They are
// written into the folder idx next to their shard, where runs look for them, or all into `output`. Folders are made.
// Throws kNotFound when there is no shard, kInvalidArgument when two shards of one name would share an index file,
// kCorruptData when a shard cannot be indexed; the files of other shards may have been written by then.
IndexedShards write_index_files(const std::string& directory, const std::string& output = "",
                                core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::data
