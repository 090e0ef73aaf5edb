#include "trainyard/data/tools/index_shards.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

struct Job {
  std::string shard, index;  // paths
};

// "train-00000-of-00002": a number on either side of "-of-". Other names with these letters are no shards.
bool is_shard_name(const std::string& name) {
  const auto is_digit = [&](size_t at) { return at < name.size() && name[at] >= '0' && name[at] <= '9'; };
  if (name.ends_with(".idx")) return false;
  for (size_t at = name.find("-of-"); at != std::string::npos; at = name.find("-of-", at + 1)) {
    if (at > 0 && is_digit(at - 1) && is_digit(at + 4)) return true;
  }
  return false;
}

}  // namespace

IndexedShards write_index_files(const std::string& directory, const std::string& output, core::FileSystem& files) {
  IndexedShards written;
  std::vector<std::string> folders = {directory};
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    for (std::string& folder : subset_folders(files, directory, subset)) folders.push_back(std::move(folder));
  }
  std::vector<Job> jobs;
  std::map<std::string, std::string> shard_of;  // by index file
  for (const std::string& folder : folders) {
    const std::string place = output.empty() ? core::join_path(folder, "idx") : output;
    const size_t before = jobs.size();
    for (const std::string& name : files.list(folder)) {
      if (!is_shard_name(name) || files.info(core::join_path(folder, name)).is_directory) continue;
      jobs.push_back({core::join_path(folder, name), core::join_path(place, name + ".idx")});
      const auto [other, is_new] = shard_of.emplace(jobs.back().index, jobs.back().shard);
      if (is_new) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "two shards of one name cannot have their index in one folder",
                   .where = jobs.back().shard,
                   .actual = "the same name as " + other->second,
                   .remedy = "leave the output folder out: each is indexed beside itself"});
    }
    if (jobs.size() != before && (written.folders.empty() || written.folders.back() != place)) {
      written.folders.push_back(place);
    }
  }
  if (jobs.empty()) {
    throw Error(ErrorCode::kNotFound, {.problem = "no TFRecords to index",
                                       .where = directory,
                                       .expected = "files as train-00000-of-01024, there or in its train and val",
                                       .remedy = "pass the directory that holds the shards"});
  }
  for (const std::string& folder : written.folders) files.make_directories(folder);
  std::atomic<int64_t> records = 0;
  core::for_each_parallel(jobs.size(), core::available_cores(), [&](size_t i) {
    const auto shard = files.open_read(jobs[i].shard);
    const formats::RecordIndex index(formats::index_tfrecord(*shard));
    files.write_file_atomically(jobs[i].index, formats::format_record_index(index));
    records += static_cast<int64_t>(index.size());
  });
  written.shards = static_cast<int64_t>(jobs.size());
  written.records = records;
  return written;
}

}  // namespace trainyard::data
