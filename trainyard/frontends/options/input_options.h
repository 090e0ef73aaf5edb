// The requested options of a run's input: the data, and how it is decoded, ordered and cached. And their flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/frontends/options/image_options.h"

namespace trainyard::frontends {

struct InputOptions {
  std::string data_name{};  // "imagenet", "cifar10", "shapes", "coco"; empty: what data_dir holds (dataset_choice.h)
  std::string data_dir{};   // or shards by name; empty: synthetic images
  std::string data_index_dir{};
  bool split_class_folders = true;  // data::DatasetOptions::divide
  // How images without a validation set are divided. Unset: a fifth is for validation, or as a saved model says.
  std::optional<data::Division> division{};
  bool division_is_saved = false;  // true: a saved model says the division; data that cannot be divided are no error
  std::string labels_csv{};        // table of labels (data/datasets/labelled_files.h); empty: none
  data::OnUnlabelledFile on_unlabelled_file = data::OnUnlabelledFile::kFail;
  bool balanced_sampling = false;  // data::PipelineOptions::balanced_labels
  uint64_t seed = 1234;
  std::optional<int> threads{};  // unset: half of the cores
  ImageOptions images{};
  data::BadSampleOptions bad_samples{};
  data::OnUnknownClass on_unknown_class = data::OnUnknownClass::kFail;
  int64_t batches_ahead = 1;                    // batches made ahead, of all devices together; 0: only the current one
  int64_t shuffle_buffer = 10000;               // samples; 0: all
  bool cache_records = false;                   // keeps records in memory, as they are stored
  std::optional<int64_t> record_cache_bytes{};  // with cache_records; unset: a share of the free memory
  bool repeat_cached_sample = false;
  int64_t decoded_cache_bytes = 0;  // bytes of memory for decoded images
  std::string decoded_cache_dir{};  // folder for decoded images in files; empty: none
  bool decode_on_gpu = false;       // data/device/device_transform.h
  // Evaluations do not read the next three.
  data::MixOptions mix{};
  int64_t repeated_augmentation = 1;
  std::vector<data::EpochSize> epoch_sizes{};  // the last one is the model's size; empty: one size
};

// Declares the flag that decides what happens to classes that the training does not know.
void declare_unknown_class_flag(core::FlagTable& table, const char* group);
// Declares the flags that say which data set is read, and where it is.
void declare_source_flags(core::FlagTable& table);
// Declares the flags of how images are divided into training and validation, and of tables of labels; reads them.
// read_division_flags() throws kInvalidArgument for flags that contradict each other.
void declare_division_flags(core::FlagTable& table);
void read_division_flags(const core::FlagValues& values, InputOptions& options);
// Declares all flags of the input: source, images, pipeline, batches.
void declare_input_flags(core::FlagTable& table);
// Declares --synthetic, for commands that can run without data.
void declare_synthetic_flag(core::FlagTable& table);

// Reads what declare_input_flags() declares, and --tf_random_seed. Throws kInvalidArgument.
[[nodiscard]] InputOptions read_input_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
