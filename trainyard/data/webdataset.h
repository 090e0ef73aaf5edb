// Images in tar archives as the webdataset library has them (docs/formats/webdataset.md): files that follow each other
// with the same key, the path up to the first '.' of its last part, are one sample; "0001.jpg" and "0001.cls". Source:
// webdataset's tariterators.py (base_plus_ext, group_by_keys).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/data/dataset.h"
#include "trainyard/data/shard_files.h"
#include "trainyard/formats/tar.h"

namespace trainyard::data {

// The image is KEY.jpg, KEY.jpeg or KEY.png, the first of them; the label KEY.cls, a number as text, or the number
// "label" of KEY.json. Groups with neither are passed over, a group with one of the two is a bad sample.
class WebDataset : public Dataset {
 public:
  // Reads the headers of all files in the shards. Throws kCorruptData where one is damaged, NoSuchSubset without
  // samples.
  WebDataset(const DatasetOptions& options, const std::vector<std::string>& shards, int64_t label_count,
             std::vector<std::string> label_names);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return label_count_; }
  std::vector<std::string> label_names() const override { return label_names_; }

 private:
  struct Part {
    uint64_t offset = 0;  // 0: the sample has none (an archive begins with a header)
    uint64_t size = 0;
  };
  struct Sample {
    uint32_t shard = 0;
    bool json = false;  // the label
    Part image, label;
  };
  static std::vector<Sample> group(const std::vector<formats::TarMember>& members, uint32_t shard);
  core::Result<int64_t> parse_label(const Sample& sample, const std::string& text) const;

  ShardFiles files_;
  int64_t label_count_;
  std::vector<std::string> label_names_;
  std::vector<Sample> samples_;
};

}  // namespace trainyard::data
