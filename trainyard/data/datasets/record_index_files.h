// The index files of TFRecord shards: where they are, and keeping them. data/tools/index_shards.h writes them beside
// the shards.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/records/record_index.h"

namespace trainyard::data {

// Returns the index file of a shard: DIRECTORY/NAME.idx, or without a directory idx/NAME.idx beside the shard, NAME.idx
// beside it; "" where there is none.
std::string find_index_file(core::FileSystem& files, const std::string& shard, const std::string& directory = "");

// Returns where this user's runs keep the index of a shard that has no index file, or "" when they have no folder for
// it. A shard that was written again, or another one of the same path, gets another place.
std::string kept_index_file(const std::string& shard, const core::FileInfo& info);

// Keeps an index there. Nothing is kept for a shard with few records, because looking at it again takes no longer. A
// disk that refuses it does no harm: the index is found out again.
void keep_index(core::FileSystem& files, const std::string& path, const formats::RecordIndex& index);

}  // namespace trainyard::data
