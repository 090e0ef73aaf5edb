// Converts a data set to another form. Image files keep their bytes; raw pixels become PNG.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

struct ConvertOptions {
  std::string name;  // name of the data set: "imagenet"
  std::string from;
  std::string output;  // must not exist, or be empty
  std::string to;      // one of conversion_targets()
  int64_t samples_per_shard = 1000;
  int threads = 1;
  OnUnknownClass on_unknown_class = OnUnknownClass::kFail;  // what to do with unknown classes of validation images
  core::FileSystem* files = &core::local_file_system();
  core::StopToken stop = core::StopSource().token();  // looked at before each sample
  void validate() const;                              // throws kInvalidArgument
  void check_stop() const;                            // throws kCancelled after a stop
};

// Returns "tfrecord", "webdataset", "folder" (class folders), "cifar_binary" (32 x 32 images of ten classes) and "coco"
// (COCO's JSON and folders of images: convert_coco.h).
std::vector<std::string> conversion_targets();

struct ConvertedSamples {
  int64_t train = 0, validation = 0;
};

// Converts both subsets, as far as they exist, in the order in which the source has them (class folders sort them by
// class). Labels are the same classes; TFRecords of ImageNet count them from 1, all other forms from 0. Bounding boxes
// are kept in TFRecords only. The training's classes number those of the validation, too. Class names are copied, from
// the source's list or else from its records (converted_classes.h). Throws kInvalidArgument where records of one label
// name different classes, kNotFound when there is neither subset, kCorruptData at a bad sample, kCancelled
// after a stop. Removes the output after an error.
//
// Class folders without folders of the subsets are divided as trainings and evaluations divide them
// (datasets/dataset_division.h): a fifth of each class are validation images.
ConvertedSamples convert_dataset(const ConvertOptions& options);

}  // namespace trainyard::data
