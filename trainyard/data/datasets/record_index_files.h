// The index files of TFRecord shards: where they are, and writing them.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/records/record_index.h"

namespace trainyard::data {

// The index file of a shard: DIRECTORY/NAME.idx, or without a directory idx/NAME.idx beside the shard, NAME.idx beside
// it.
// "" where there is none.
std::string find_index_file(core::FileSystem& files, const std::string& shard, const std::string& directory = "");

// Returns where this user's runs keep the index of a shard that has no index file, or "" when they have no folder for
// it. A shard that was written again, or another one of the same path, gets another place.
std::string kept_index_file(const std::string& shard, const core::FileInfo& info);

// Keeps an index there. Nothing is kept for a shard with few records, because looking at it again takes no longer. A
// disk that refuses it does no harm: the index is found out again.
void keep_index(core::FileSystem& files, const std::string& path, const formats::RecordIndex& index);

struct IndexedShards {
  int64_t shards = 0, records = 0;
};

// For each shard NAME-of-NAME in `directory` the file NAME.idx in `output`, which is made: the bytes of DALI's
// tfrecord2idx. Throws kNotFound when there is no shard, kCorruptData where one cannot be indexed; the files of the
// others may then be there already.
IndexedShards write_index_files(const std::string& directory, const std::string& output,
                                core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::data
