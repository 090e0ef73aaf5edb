// Reads images from tar archives in the webdataset library's form (docs/formats/webdataset.md). Files that follow each
// other with the same key, which is the path up to the first '.' of its last part, are one sample: "0001.jpg" and
// "0001.cls". Source: webdataset's tariterators.py (base_plus_ext, group_by_keys).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/shard_files.h"
#include "trainyard/data/datasets/webdataset_label.h"
#include "trainyard/formats/containers/tar.h"

namespace trainyard::data {

// The image is the first of KEY.jpg, KEY.png, KEY.webp and the other formats of codecs/image_formats.h. The label is
// KEY.cls or, when there is none, KEY.json (webdataset_label.h), which also names the class of a number in KEY.cls.
// Groups with neither are skipped; a group with only one of image and label is a bad sample.
//
// The first sample's label says whether labels are numbers or names; a set has one kind. Names are numbered by
// DatasetOptions::classes, else by the data set's own names, else by their order, byte by byte, among all that occur.
class WebDataset : public Dataset {
 public:
  // Reads the headers of all files in the shards and, where labels are names, all labels. Throws kCorruptData where a
  // shard is damaged, NoSuchSubset where there are no samples, and kInvalidArgument where labels are numbers and names,
  // or names that are unknown.
  WebDataset(const DatasetOptions& options, const std::vector<std::string>& shards, int64_t label_count,
             std::vector<std::string> label_names);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return label_count_; }
  std::vector<std::string> label_names() const override { return label_names_; }

 private:
  struct Part {
    uint64_t offset = 0;  // 0: the sample has no such file (an archive begins with a header)
    uint64_t size = 0;
  };
  struct Sample {
    uint32_t shard = 0;
    Part image{}, cls{}, json{};

    bool has_label() const { return cls.offset != 0 || json.offset != 0; }
  };
  static std::vector<Sample> group(const std::vector<formats::TarMember>& members, uint32_t shard);
  bool labels_are_names() const;
  std::vector<std::string> read_names() const;
  void number_names(const KnownClasses& known, const std::string& where);
  core::Result<WebLabel> read_label(const Sample& sample) const;
  core::Result<std::string> read_text(const Sample& sample, const Part& part) const;
  core::Result<int64_t> label_of(const WebLabel& label) const;
  std::string describe(const Sample& sample) const;

  ShardFiles files_;
  int64_t label_count_;
  std::vector<std::string> label_names_;
  std::unordered_map<std::string, int64_t> numbers_;  // numbers of names; empty: labels are numbers
  std::vector<Sample> samples_;
};

}  // namespace trainyard::data
