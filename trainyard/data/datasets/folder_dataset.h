// Images in folders, one a class: ROOT/<class>/**/*.jpg. Classes and files come in the order of torchvision's
// ImageFolder (checked by tools/golden/image_folder.py): classes by name, then folders below by path, then files by
// name, where names are compared byte by byte. A class without an image keeps its label; a folder whose name begins
// with '.' is no class. DatasetOptions::classes numbers the labels when it is given, else classnames.txt
// (class_names_file.h), else the folders.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// Returns true when the path leads to a directory; false for a dangling link.
[[nodiscard]] bool is_directory(core::FileSystem& files, const std::string& path);

// Returns the absolute path of a folder without "." and ".." and without a slash at its end, so that its last part is
// the folder's name: ".../train" for "train/", and for "." within it.
[[nodiscard]] std::string full_path(const std::string& directory);

// Throws kInvalidArgument when `path` is too deep below the listed folder: a link may lead back to its parent.
void refuse_depth(const std::string& path, int depth);

// Returns the names of the folders in `directory`, sorted, without hidden ones.
[[nodiscard]] std::vector<std::string> folders_in(core::FileSystem& files, const std::string& directory);

// Returns the names of the classes in `root` by their labels: as classnames.txt lists them (class_names_file.h), else
// folders_in().
[[nodiscard]] std::vector<std::string> class_order(core::FileSystem& files, const std::string& root);

// Returns true when the folder holds a folder with an image in it.
[[nodiscard]] bool holds_class_folders(core::FileSystem& files, const std::string& directory);

class FolderDataset : public Dataset {
 public:
  // Lists all folders, and logs which files it leaves out. Throws NoSuchSubset when there is no image, kInvalidArgument
  // when folders nest too deep (a link that leads back to its parent) or one is of a class that options.classes does
  // not know.
  FolderDataset(const DatasetOptions& options, const std::string& root);

  int64_t size() const override { return static_cast<int64_t>(places_.size()); }
  // Throws errors of the operating system: a file that has been removed since the start is not a bad sample.
  core::Result<Record> read(int64_t index) const override;
  // Returns the label of sample `index` without reading its file.
  [[nodiscard]] int64_t label(int64_t index) const { return folders_[places_[index].folder].label; }
  std::optional<int64_t> known_label(int64_t index) const override { return label(index); }
  // Returns the path of its file below the folder of its class: "0001.jpg", "close/0001.jpg".
  [[nodiscard]] std::string name_in_class(int64_t index) const;
  int64_t label_count() const override { return static_cast<int64_t>(classes_.size()); }
  std::vector<std::string> label_names() const override { return classes_; }

 private:
  struct Folder {
    std::string path{};
    uint32_t label{};
    uint32_t class_length{};  // length of the part of `path` that is the folder of the class
  };
  struct Place {
    uint32_t folder{};
    uint32_t name_length{};
    uint64_t name_begin{};  // begin in names_
  };
  void add(const std::string& path, const std::vector<std::string>& images, int64_t label, size_t class_length);
  std::string path_of(const Place& place) const;

  core::FileSystem& files_;
  std::vector<std::string> classes_;
  std::vector<Folder> folders_;
  std::string names_;  // names of all files, concatenated: a million strings would take three times the memory
  std::vector<Place> places_;
};

}  // namespace trainyard::data
