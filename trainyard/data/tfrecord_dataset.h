// Images with labels in TFRecord shards of the ImageNet schema (docs/formats/tf_example.md): what the data sets in
// TFRecords have in common.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/dataset.h"
#include "trainyard/formats/tfrecord.h"

namespace trainyard::data {

// The shards PREFIX-*-of-* in the data set's directory, sorted; maybe none. Throws kNotFound when there is no such
// directory.
std::vector<std::string> list_shards(const DatasetOptions& options, std::string_view prefix);
// The same, but none is kNotFound with upstream's text; `other_forms` says what else the directory may hold.
std::vector<std::string> find_shards(const DatasetOptions& options, std::string_view prefix,
                                     std::string_view other_forms = "");

struct Labels {
  int64_t count = 0;               // labels are in [0, count)
  std::vector<std::string> names;  // may be empty
};

// The shards' lengths are read once, at the beginning; records when they are asked for, with both checksums checked.
class TfRecordDataset : public Dataset {
 public:
  // Throws kCorruptData where a shard cannot be indexed, kNotFound when all are empty.
  TfRecordDataset(const DatasetOptions& options, const std::vector<std::string>& shards, Labels labels);

  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return labels_.count; }
  std::vector<std::string> label_names() const override { return labels_.names; }

 private:
  struct Place {
    uint32_t shard;
    formats::RecordSpan span;
  };
  std::string describe(const Place& place) const;
  core::Result<Record> parse(std::string_view example, const Place& place) const;

  Labels labels_;
  std::vector<std::unique_ptr<core::ReadableFile>> shards_;
  std::vector<Place> records_;
  bool cache_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const std::string>> cached_;  // by index, null where not read yet
};

}  // namespace trainyard::data
