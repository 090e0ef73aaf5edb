// Image files whose labels a table says: comma-separated values (formats/records/csv.h) with a header.
//
//   file,label             file,labels                file,cat,dog,night
//   a.jpg,cat              a.jpg,cat;night            a.jpg,1,0,1
//   b/c.jpg,"dog, small"   b.jpg,                     b.jpg,0,0,0
//
// The column "file" holds paths below the data set's directory, with '/' between folders. A column "label" holds the
// one class of each image. A column "labels" holds any number of classes, separated by ';', and so does "label" when
// any of its fields has a ';'. Two or more other columns are classes with 0 or 1 in each row. In the last two forms an
// image has a set of labels (Dataset::has_label_sets). Blanks around names of classes do not count. Classes are
// numbered by their names, byte by byte, or by the order of their columns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/dataset_division.h"

namespace trainyard::data {

class LabelledFiles : public Dataset {
 public:
  // Reads options.labels_csv and lists options.directory. Throws kInvalidArgument, with the first names and their
  // lines, for a header without these columns, files that are missing or named twice, paths that lead out of the
  // directory, images without a label, images that the table does not name unless options.on_unlabelled_file skips
  // them, and classes that options.classes does not have; kCorruptData for a malformed table; NoSuchSubset for a table
  // without rows.
  explicit LabelledFiles(const DatasetOptions& options);

  int64_t size() const override { return std::ssize(files_); }
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return std::ssize(classes_); }
  std::vector<std::string> label_names() const override { return classes_; }
  std::optional<int64_t> known_label(int64_t index) const override;
  bool has_label_sets() const override { return sets_; }

  // Returns the labels of sample `index`, ascending.
  [[nodiscard]] std::span<const int32_t> labels(int64_t index) const;
  // Returns the path of sample `index` below the directory.
  [[nodiscard]] const std::string& file(int64_t index) const { return files_[index]; }

 private:
  core::FileSystem& file_system_;
  std::string directory_;
  bool sets_ = false;
  std::vector<std::string> classes_;
  std::vector<std::string> files_;  // in the order of the table
  std::vector<int32_t> labels_;     // of all samples, one after the other
  std::vector<size_t> begins_;      // of each sample's labels in labels_, and the end
};

// Returns the names of the samples, for their division. Images of one label are stratified by it, those of label sets
// by the label that the fewest images have; images without a label are a class of their own.
[[nodiscard]] NamedSamples named_samples(const std::shared_ptr<const LabelledFiles>& whole);

// Opens the subset's part of the files in options.labels_csv; all of them when options.divide is false. Logs the
// number of classes and the division.
[[nodiscard]] std::unique_ptr<Dataset> open_labelled_files(const DatasetOptions& options);

}  // namespace trainyard::data
