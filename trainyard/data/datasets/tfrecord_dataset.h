// Images with labels in TFRecord shards of the ImageNet schema (docs/formats/tf_example.md). All data sets in TFRecords
// use it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shard_files.h"
#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {

// The constructor needs only the number of records in each shard. It takes it from the shard's index file, or else
// reads the record headers of the shard, and caches the result in the user's cache folder. An index file is read with
// the first record of its shard. Records are read on demand, and both checksums are verified.
class TfRecordDataset : public Dataset {
 public:
  // Throws kCorruptData when a shard cannot be indexed or an index file belongs to another shard, kNotFound when all
  // shards are empty or options.index_directory does not exist.
  TfRecordDataset(const DatasetOptions& options, const std::vector<std::string>& shards, Labels labels);

  int64_t size() const override { return size_; }
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return labels_.count; }
  int64_t first_label() const override { return labels_.first; }
  std::vector<std::string> label_names() const override { return labels_.names; }

 private:
  struct Shard {
    std::string index_path{};  // empty when there is no index file
    bool kept = false;         // the index is one that an earlier run has cached, not the user's
    size_t records = 0;
    int64_t first = 0;  // index of its first record
    mutable std::once_flag indexed;
    mutable formats::RecordIndex index;
  };
  struct Place {
    size_t shard{};
    formats::RecordSpan span{};
  };
  void count_records(const DatasetOptions& options, size_t shard);
  void warn_of_missing_indexes(const DatasetOptions& options) const;
  size_t records_in(const std::string& index_path, size_t shard) const;
  bool accept_kept_index(const std::string& path, size_t shard);
  void scan(size_t shard) const;
  void read_index(size_t shard) const;
  void check_index(size_t shard) const;
  Place place_of(int64_t index) const;
  std::string describe(const Place& place) const;
  core::Result<Record> parse(std::string_view example, const Place& place) const;

  Labels labels_;
  core::FileSystem& file_system_;
  ShardFiles files_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

}  // namespace trainyard::data
