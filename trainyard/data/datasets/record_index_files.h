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

// Where this user's runs keep the index of a shard that has no index file; "" when they have no folder for it. A shard
// that was written again, or is another of the same path, has another one.
std::string kept_index_file(const std::string& shard, const core::FileInfo& info);

// Keeps an index there. A shard with few records has nothing kept: looking at it again takes no longer. A disk that
// refuses it is no matter: the index is found out again.
void keep_index(core::FileSystem& files, const std::string& path, const formats::RecordIndex& index);

}  // namespace trainyard::data
