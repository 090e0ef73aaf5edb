// How the images of a data set are stored, which is found out by looking at what its directory holds:
//
//   TFRecords       DIR/train-*-of-*, DIR/validation-*-of-*
//   WebDataset      DIR/*.tar whose names hold a word for the subset: imagenet-train-000.tar, val_0001.tar
//   class folders   DIR/train/<class>/*.jpg, DIR/val/<class>/*.jpg; or DIR/<class>/*.jpg, of which a fifth is for
//                   validation (dataset_division.h)
//
// The first two may also lie in DIR/train, DIR/val. Words for the validation images are validation, val, valid and
// test, in folders' names in capital letters, too; where images of several words are there, those of the first one
// count. Instead of a directory, shards can be named: one file, a glob in the file's name (train-*.tar), or braces
// (train-{000..146}.tar, {train,val}-{0..9}.tar). Those with a word for the other subset are left out. DIR/val itself
// holds validation images alone, where DIR/train is there, too; and the other way round.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/datasets/dataset.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The labels of a data set in TFRecords, which its name decides.
struct Labels {
  int64_t count = 0;                 // labels are in [0, count)
  std::vector<std::string> names{};  // may be empty
  int64_t first = 0;                 // of the first class; 1: 0 is background
};

// Return what the TFRecords of a data set look like: the word in front of -*-of-* in their names ("train", "validation"
// or, for CIFAR-10, "test"), and the label of the first class.
[[nodiscard]] [[nodiscard]] std::string_view tfrecord_prefix(std::string_view dataset, Subset subset);
[[nodiscard]] [[nodiscard]] int64_t tfrecord_first_label(std::string_view dataset);

// Returns the names of CIFAR-10's labels 0 to 9.
const std::vector<std::string>& cifar10_class_names();

enum class Form { kTfRecords, kWebDataset, kClassFolders };

struct StoredImages {
  Form form = Form::kTfRecords;
  std::vector<std::string> paths{};  // the shards, sorted; or the one folder that holds the class folders
  bool undivided = false;            // class folders that hold the images of both subsets
};

// Returns the directory or the files that `data` names, shards of either subset: what a glob or braces stand for, else
// `data` itself. Throws kInvalidArgument for malformed braces.
[[nodiscard]] std::vector<std::string> paths_named(core::FileSystem& files, const std::string& data);

// Returns what is there of the subset, looking in the order above; `options.shards` where there are any. `prefix` is
// that of the set's TFRecords. Throws NoSuchSubset, in tf_cnn_benchmarks' words, with what the directory holds instead,
// and kNotFound where there is no directory; `other_forms` says what else it might have held.
[[nodiscard]] StoredImages find_stored_images(const DatasetOptions& options, std::string_view prefix,
                                              std::string_view other_forms = "");

// Returns the folders of `directory` whose name is a word for the subset, as far as they are there: DIR/train; or
// DIR/validation, DIR/val, DIR/valid, DIR/test. The first that holds a data set is the one that is read.
[[nodiscard]] std::vector<std::string> subset_folders(core::FileSystem& files, const std::string& directory,
                                                      Subset subset);

// Throws kNotFound where `directory` names nothing that is there: no directory, no file, no glob and no braces.
void require_data(core::FileSystem& files, const std::string& directory);

// Throws kInvalidArgument where options.index_directory is set: the data set is none of TFRecords.
void refuse_index_files(const DatasetOptions& options);

// Opens what find_stored_images() finds; of undivided class folders the subset's part, and says so in the log, unless
// options.divide is false. WebDataset and class folders count labels from 0, even where the TFRecords of the set do
// not.
std::unique_ptr<Dataset> open_stored_images(const DatasetOptions& options, std::string_view prefix,
                                            const Labels& labels, std::string_view other_forms = "");

// Returns the names that number the labels of a data set's training images, where these are class folders or WebDataset
// shards. Empty where labels are numbers, or where there are no training images. Throws what open_stored_images()
// throws.
[[nodiscard]] std::vector<std::string> training_class_names(const std::string& name, DatasetOptions options);

// Returns the paths that "a-{000..146}.tar" or "{train,val}.tar" stands for, and the text itself where it has no
// braces. Throws kInvalidArgument for braces that do not close and for more than a million paths.
[[nodiscard]] std::vector<std::string> expand_braces(const std::string& text);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
