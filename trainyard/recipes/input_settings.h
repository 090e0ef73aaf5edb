// The flags of input as options of the data room: which data, how it is decoded, ordered and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::recipes {

struct InputSettings {
  std::string dataset;   // "imagenet", "cifar10", "shapes"
  std::string data_dir;  // empty: synthetic images
  std::string data_index_dir;
  uint64_t seed = 0;
  int input_threads = 1;
  data::TransformOptions transform;
  data::BadSampleOptions bad_samples;
  data::OnUnknownClass on_unknown_class = data::OnUnknownClass::kFail;
  int64_t prefetch_batches = 1;  // of all devices together, the one in the making included
  int64_t shuffle_buffer = 10000;
  bool repeat_cached_sample = false;
  int64_t record_cache_bytes = 0;   // of memory; 0: no cache
  int64_t decoded_cache_bytes = 0;  // of memory
  std::string decoded_cache_dir;
  bool decode_on_gpu = false;  // data/device_transform.h

  bool synthetic() const { return data_dir.empty(); }
};

// Of data::declare_input_flags and tf_random_seed. Throws kInvalidArgument.
InputSettings read_input_settings(const core::FlagValues& values, const std::string& dataset, int64_t image_size);

// The data set in data_dir, behind the caches that the flags ask for. Throws what a data set's constructor does, and
// kInvalidArgument for a cache of other data. The names of `classes`, if there are any, number the labels.
std::shared_ptr<const data::Dataset> open_dataset(const InputSettings& settings, data::Subset subset,
                                                  const data::KnownClasses& classes = {});

// What the flags say of a pipeline; batch sizes and replicas are the caller's.
data::PipelineOptions pipeline_options(const InputSettings& settings, bool training);

}  // namespace trainyard::recipes
