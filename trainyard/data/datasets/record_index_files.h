// Finds the index files of TFRecord shards, and caches indexes. data/tools/index_shards.h writes index files next to
// the shards.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/records/record_index.h"

namespace trainyard::data {

// Returns the index file of a shard: DIRECTORY/NAME.idx, or without a directory idx/NAME.idx or NAME.idx in the shard's
// folder; "" when there is none.
std::string find_index_file(core::FileSystem& files, const std::string& shard, const std::string& directory = "");

// Throws kNotFound when there is no such folder of index files. An empty `directory` names none.
void require_index_folder(core::FileSystem& files, const std::string& directory);

// Returns the path in the user's cache for the index of a shard that has no index file, or "" when there is no cache
// folder. A shard that was written again, or another one of the same path, gets another path.
std::string kept_index_file(const std::string& shard, const core::FileInfo& info);

// Writes an index to the cache. Skips shards with few records, because reading those again takes no longer. Ignores
// errors of the disk: a later run then builds the index again.
void keep_index(core::FileSystem& files, const std::string& path, const formats::RecordIndex& index);

}  // namespace trainyard::data
