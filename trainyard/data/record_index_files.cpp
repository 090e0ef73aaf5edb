#include "trainyard/data/record_index_files.h"

#include <atomic>

#include "trainyard/core/error.h"
#include "trainyard/core/parallel.h"
#include "trainyard/core/thread.h"
#include "trainyard/formats/record_index.h"
#include "trainyard/formats/tfrecord.h"

namespace trainyard::data {

IndexedShards write_index_files(const std::string& directory, const std::string& output, core::FileSystem& files) {
  std::vector<std::string> names;
  for (const std::string& name : files.list(directory)) {
    if (name.find("-of-") != std::string::npos && !name.ends_with(".idx")) names.push_back(name);
  }
  if (names.empty()) {
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "no TFRecords to index",
                                                   .where = directory,
                                                   .expected = "files as train-00000-of-01024",
                                                   .remedy = "pass the directory that holds the shards"});
  }
  files.make_directories(output);
  std::atomic<int64_t> records = 0;
  core::for_each_parallel(names.size(), core::available_cores(), [&](size_t i) {
    const auto shard = files.open_read(core::join_path(directory, names[i]));
    const formats::RecordIndex index(formats::index_tfrecord(*shard));
    files.write_file_atomically(core::join_path(output, names[i] + ".idx"), formats::format_record_index(index));
    records += static_cast<int64_t>(index.size());
  });
  return {static_cast<int64_t>(names.size()), records};
}

}  // namespace trainyard::data
