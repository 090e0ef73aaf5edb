// Selects the data set of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

struct DatasetChoice {
  std::string name;  // name of the data set
  // How its images are stored, if the directory was examined to find the name.
  std::optional<data::Form> form;
};

// Returns the name that follows from the flags alone: `name`, or "imagenet" (synthetic images) without a directory.
// Returns nothing when the directory decides. Throws kInvalidArgument with the text of tf_cnn_benchmarks for an unknown
// name, kUnsupported for librispeech.
std::optional<std::string> named_dataset(const std::string& name, const std::string& directory);

// Returns named_dataset(), or else examines the directory. Class folders are imagenet, whatever their path, unless
// their names and the size of an image are those of CIFAR-10 or of shapes. Otherwise it is, as in tf_cnn_benchmarks,
// the first of imagenet, cifar10, librispeech, coco, shapes that is a part of `directory`, else what that holds:
// CIFAR-10's batches, COCO's annotations, WebDataset shards (imagenet), or TFRecords, by their first record. Logs the
// result. `otherwise` is the name for a directory without images; empty: that is an error. Throws kNotFound when the
// directory does not exist, kInvalidArgument with the text of tf_cnn_benchmarks, and as named_dataset().
DatasetChoice choose_dataset(const std::string& name, const std::string& directory, const std::string& otherwise = "",
                             core::FileSystem& files = core::local_file_system());

// Does the same with the input's data_name and data_dir. Without a name, files with a table of labels are imagenet, and
// count as class folders.
DatasetChoice choose_dataset(const InputOptions& input, core::FileSystem& files = core::local_file_system());

// Returns a display name: the name of the folder, "cats_and_dogs", when `directory` holds class folders, else the data
// set's. Examines the directory only if the choice has not.
std::string folder_label(const DatasetChoice& choice, const std::string& directory,
                         core::FileSystem& files = core::local_file_system());

// Returns the side, in pixels, of the images of a data set where neither a model nor a flag says it: 224, of COCO 300,
// of CIFAR-10 and shapes 32.
[[nodiscard]] int64_t usual_image_size(const std::string& dataset);

// Returns the offset that the pipeline adds to the labels of `dataset` for a model of that many classes: models with a
// class for the background have it first, and TFRecords of ImageNet count from 1. Throws kInvalidArgument when the data
// set names more classes than the model has.
int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes);

}  // namespace trainyard::frontends
