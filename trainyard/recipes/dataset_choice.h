// Which data set a run is on.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/recipes/dialect.h"

namespace trainyard::recipes {

// data_name, else the first of imagenet, cifar10, librispeech, coco, shapes that is a part of data_dir, else what it
// holds: CIFAR-10's batches, class folders or WebDataset shards (imagenet), or TFRecords, by their first record;
// without a data_dir "imagenet" (of synthetic images). `tells`: the log says what was found in the directory. Throws
// kNotFound where nothing is there, kInvalidArgument with the texts of tf_cnn_benchmarks, kUnsupported for librispeech
// and coco.
std::string benchmark_dataset_name(const core::FlagValues& values, bool tells = true);
// The same by name and directory, each maybe empty. `otherwise`: what a directory without any images is taken for;
// empty: it is an error.
std::string dataset_name_of(std::string name, const std::string& directory, const std::string& otherwise = "",
                            bool tells = true);

// The name of the data set for people. In `trainyard train|eval` images in class folders that nobody has named are
// called as their folder is; synthetic ones are marked.
std::string dataset_label(const core::FlagValues& values, const std::string& dataset, Dialect dialect);

// What the pipeline adds to the labels of `dataset` for a model of that many classes: models with a class for the
// background have it first, and TFRecords of ImageNet count from 1. Throws kInvalidArgument when the data set names
// more classes than the model has.
int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes);

}  // namespace trainyard::recipes
