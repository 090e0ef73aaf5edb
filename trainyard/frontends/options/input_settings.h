// The input of a run: the data, and how it is decoded, ordered and cached. InputOptions (input_options.h) are the
// requested options, InputSettings the resulting ones for a data set and model, as options of trainyard/data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/listing_cache.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/frontends/options/input_options.h"

namespace trainyard::frontends {

struct InputSettings {
  std::string dataset{};   // "imagenet", "cifar10", "shapes", "coco"
  std::string data_dir{};  // empty: synthetic images
  std::string data_index_dir{};
  // As in InputOptions.
  bool split_class_folders = true;
  std::optional<data::Division> division{};
  bool division_is_saved = false;
  std::string labels_csv{};
  data::OnUnlabelledFile on_unlabelled_file = data::OnUnlabelledFile::kFail;
  uint64_t seed = 0;
  int input_threads = 1;
  data::TransformOptions transform{};
  std::string preprocessor = "default";  // name in data::input_presets() that `transform` is derived from
  data::BadSampleOptions bad_samples{};
  data::OnUnknownClass on_unknown_class = data::OnUnknownClass::kFail;
  int64_t prefetch_batches = 1;  // of all devices together, the current one included
  int64_t shuffle_buffer = 10000;
  bool repeat_cached_sample = false;
  int64_t record_cache_bytes = 0;   // of memory; 0: no cache
  int64_t decoded_cache_bytes = 0;  // of memory
  std::string decoded_cache_dir{};
  bool decode_on_gpu = false;  // data/device_transform.h
  // Evaluations do not read the next four.
  bool balanced_sampling = false;
  data::MixOptions mix{};
  int64_t repeated_augmentation = 1;
  std::vector<data::EpochSize> epoch_sizes{};
  // Caches listings of data_dir; null: each reader lists it. Data sets keep it to read their files.
  std::shared_ptr<core::ListingCache> files{};

  core::FileSystem& file_system() const {
    if (files) return *files;
    return core::local_file_system();
  }
  bool synthetic() const { return data_dir.empty(); }
};

// Returns the settings for a data set, images of `image_size` and so many replicas. Reads the free memory and resolves
// folders, but opens nothing. Throws kInvalidArgument and kUnsupported for options that do not fit together.
[[nodiscard]] InputSettings settle_input(const InputOptions& options, const std::string& dataset, nn::Size2d image_size,
                                         int replicas);

// Returns the options with which data_dir is opened, and the form of its data examined.
[[nodiscard]] data::DatasetOptions dataset_options(const InputSettings& settings, data::Subset subset);

// Opens the data set in data_dir, with the requested caches. Throws what a data set's constructor throws, and
// kInvalidArgument for a cache of other data. The names of `classes`, if there are any, number the labels.
std::shared_ptr<const data::Dataset> open_dataset(const InputSettings& settings, data::Subset subset,
                                                  const data::KnownClasses& classes = {});

// Returns the options of a pipeline, except for batch sizes, replicas and transforms_by_epoch, which the caller sets.
[[nodiscard]] data::PipelineOptions pipeline_options(const InputSettings& settings, bool training);

}  // namespace trainyard::frontends
