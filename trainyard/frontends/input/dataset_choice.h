// Which data set a run is on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

struct DatasetChoice {
  std::string name;  // of the data set
  // How its images are stored, where the directory was looked into for the name; unset: it was not.
  std::optional<data::Form> form;
};

// Returns the name that follows from what is asked for alone: `name`, else, without a directory, "imagenet" (of
// synthetic images). Nothing: the directory decides. Throws kInvalidArgument with the text of tf_cnn_benchmarks for an
// unknown name, kUnsupported for librispeech and coco.
std::optional<std::string> named_dataset(const std::string& name, const std::string& directory);

// Returns named_dataset(), else what the directory says. Class folders are imagenet, whatever their path, unless their
// names and the size of an image are those of CIFAR-10 or of shapes. Otherwise it is, as in tf_cnn_benchmarks, the
// first of imagenet, cifar10, librispeech, coco, shapes that is a part of `directory`, else what that holds: CIFAR-10's
// batches, WebDataset shards (imagenet), or TFRecords, by their first record. Logs what was found there. `otherwise`:
// what a directory without any images is taken for; empty: it is an error. Throws kNotFound where nothing is there,
// kInvalidArgument with the text of tf_cnn_benchmarks, and as named_dataset().
DatasetChoice choose_dataset(const std::string& name, const std::string& directory, const std::string& otherwise = "",
                             core::FileSystem& files = core::local_file_system());

// Returns the name of the folder where `directory` holds class folders, for people: "cats_and_dogs"; else the data
// set's. Looks into the directory only where the choice did not.
std::string folder_label(const DatasetChoice& choice, const std::string& directory,
                         core::FileSystem& files = core::local_file_system());

// Returns what the pipeline adds to the labels of `dataset` for a model of that many classes: models with a class for
// the background have it first, and TFRecords of ImageNet count from 1. Throws kInvalidArgument when the data set names
// more classes than the model has.
int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes);

}  // namespace trainyard::frontends
