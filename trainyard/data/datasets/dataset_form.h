// Finds out from the content of its directory how the images of a data set are stored:
//
//   TFRecords       DIR/train-*-of-*, DIR/validation-*-of-*
//   WebDataset      DIR/*.tar whose names hold a word for the subset: imagenet-train-000.tar, val_0001.tar
//   class folders   DIR/train/<class>/*.jpg, DIR/val/<class>/*.jpg; or DIR/<class>/*.jpg, of which a fifth is for
//                   validation (dataset_division.h)
//
// The first two may also be in DIR/train, DIR/val. Words for the validation images are validation, val, valid and test;
// folder names may have capital letters. When several of these exist, the first one is used. Instead of a directory,
// shards can be named: one file, a glob in the file's name (train-*.tar), or braces (train-{000..146}.tar,
// {train,val}-{0..9}.tar). Shards with a word for the other subset are left out. When DIR is itself a folder .../val
// and .../train exists, it holds validation images only, and the other way round.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// The labels of a data set in TFRecords. Its name decides them.
struct Labels {
  int64_t count = 0;                 // labels are in [0, count)
  std::vector<std::string> names{};  // may be empty
  int64_t first = 0;                 // label of the first class; 1 when 0 is the background
};

// Return the convention of a data set's TFRecords: the word in front of -*-of-* in their names ("train", "validation"
// or, for CIFAR-10, "test"), and the label of the first class.
[[nodiscard]] std::string_view tfrecord_prefix(std::string_view dataset, Subset subset);
[[nodiscard]] int64_t tfrecord_first_label(std::string_view dataset);

// Returns the names of CIFAR-10's labels 0 to 9.
const std::vector<std::string>& cifar10_class_names();

enum class Form { kTfRecords, kWebDataset, kClassFolders };

struct StoredImages {
  Form form = Form::kTfRecords;
  std::vector<std::string> paths{};  // the shards, sorted; or the one folder that holds the class folders
  bool undivided = false;            // class folders that hold the images of both subsets
};

// Returns the directory or the files that `data` names, shards of either subset: the paths that a glob or braces match,
// else `data` itself. Throws kInvalidArgument for malformed braces.
[[nodiscard]] std::vector<std::string> paths_named(core::FileSystem& files, const std::string& data);

// Returns the stored images of the subset, searched in the order above, or `options.shards` when given. `prefix` is
// that of the set's TFRecords. Throws NoSuchSubset, in tf_cnn_benchmarks' words, with what the directory holds instead,
// kNotFound when there is no directory, and kCorruptData when it is not written to its end. `other_forms` names further
// forms for the message.
[[nodiscard]] StoredImages find_stored_images(const DatasetOptions& options, std::string_view prefix,
                                              std::string_view other_forms = "");

// Returns the existing folders of `directory` that are named for the subset: DIR/train; or DIR/validation, DIR/val,
// DIR/valid, DIR/test. The first one that holds a data set is read.
[[nodiscard]] std::vector<std::string> subset_folders(core::FileSystem& files, const std::string& directory,
                                                      Subset subset);

// Throws kNotFound unless `directory` names an existing directory or file, or a glob or braces that match files.
void require_data(core::FileSystem& files, const std::string& directory);

// Throws kInvalidArgument when options.index_directory is set, for data sets that are not TFRecords.
void refuse_index_files(const DatasetOptions& options);

// Throws kInvalidArgument when options.requires_division is set, for data that are not divided.
void refuse_division(const DatasetOptions& options, const char* problem, const char* actual);

// Opens what find_stored_images() finds, or the files of options.labels_csv. Divides class folders without subsets, and
// logs it, unless options.divide is false. WebDataset and class folders count labels from 0, also when the TFRecords of
// the set do not.
std::unique_ptr<Dataset> open_stored_images(const DatasetOptions& options, std::string_view prefix,
                                            const Labels& labels, std::string_view other_forms = "");

// Returns the class names, by label, of a data set's training images in class folders or WebDataset shards. Empty when
// labels are numbers, or when there are no training images. Throws what open_stored_images() throws.
[[nodiscard]] std::vector<std::string> training_class_names(const std::string& name, DatasetOptions options);

// Returns the paths of "a-{000..146}.tar" or "{train,val}.tar", and the text itself when it has no braces. Throws
// kInvalidArgument for braces that do not close and for more than a million paths.
[[nodiscard]] std::vector<std::string> expand_braces(const std::string& text);

}  // namespace trainyard::data
