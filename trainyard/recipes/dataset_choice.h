// Which data set a run is on.
#pragma once

#include <string>

#include "trainyard/core/flags.h"
#include "trainyard/data/dataset.h"
#include "trainyard/models/model_registry.h"

namespace trainyard::recipes {

// data_name, else the first of imagenet, cifar10, librispeech, coco, shapes that is a part of data_dir, else what it
// holds: CIFAR-10's batches, or class folders or WebDataset shards (imagenet); without a data_dir "imagenet" (of
// synthetic images). Throws kInvalidArgument with upstream's texts, kUnsupported for librispeech and coco.
std::string benchmark_dataset_name(const core::FlagValues& values);
// The same by name and directory, each maybe empty. `otherwise`: what TFRecords of unknown content are taken for;
// empty: they are an error.
std::string dataset_name_of(std::string name, const std::string& directory, const std::string& otherwise = "");

// What the pipeline adds to the labels of `dataset` for a model of that many classes: models with a class for the
// background have it first, and TFRecords of ImageNet count from 1. Throws kInvalidArgument when the data set names
// more classes than the model has.
int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes);

}  // namespace trainyard::recipes
