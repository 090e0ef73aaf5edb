#include "trainyard/recipes/input_settings.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/cache/decoded_dataset.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/device/device_transform.h"
#include "trainyard/recipes/image_options.h"

namespace trainyard::recipes {
namespace {

constexpr int64_t kMostBatchesAhead = 1024;

// Which pixels a sample has would depend on what is in the cache, or on who decodes it: both, where they are asked for,
// are refused.
void settle_scaled_decode(const core::FlagValues& values, InputSettings& settings) {
  const bool cached = settings.decoded_cache_bytes > 0 || !settings.decoded_cache_dir.empty();
  if (!settings.transform.scaled_decode || (!cached && !settings.decode_on_gpu)) return;
  if (!values.given("scaled_decode")) {
    settings.transform.scaled_decode = false;
    return;
  }
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = cached ? "--scaled_decode does not go with a cache of decoded images, which keeps them at full size"
                         : "--scaled_decode does not go with --dali_mode=GPU, which decodes at full size",
       .remedy = "leave one of the two out"});
}

void check_decoding_on_gpu(const core::FlagValues& values, const InputSettings& settings) {
  const auto refuse = [](bool holds, const std::string& why, const std::string& remedy) {
    if (!holds) return;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "--dali_mode=GPU cannot be used", .actual = why, .remedy = remedy});
  };
  refuse(settings.synthetic(), "there are no files to decode", "pass --data_dir, or leave it out");
  refuse(settings.dataset != "imagenet", "data set " + settings.dataset, "leave it out: it is for JPEGs of any size");
  refuse(values.boolean("datasets_repeat_cached_sample"), "--datasets_repeat_cached_sample", "leave one of them out");
  refuse(values.integer("num_gpus") > 1, std::to_string(values.integer("num_gpus")) + " GPUs in one process",
         "leave it out: one GPU decodes");
  data::check_device_transform(settings.transform);
}

// Without links and "..", with one slash at the end.
std::string real_folder(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown);
  const std::filesystem::path real = std::filesystem::weakly_canonical(whole, unknown);
  return ((real.empty() ? whole : real) / "").string();
}

// The cache would change what it is compared with.
void refuse_cache_inside_data(const InputSettings& settings) {
  if (settings.data_dir.empty() || settings.decoded_cache_dir.empty()) return;
  if (!real_folder(settings.decoded_cache_dir).starts_with(real_folder(settings.data_dir))) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--decoded_cache_dir is inside --data_dir",
                                                        .actual = settings.decoded_cache_dir,
                                                        .remedy = "name a folder elsewhere"});
}

// Bytes of memory for records as they are stored, 0 without a cache.
int64_t record_cache_bytes(const core::FlagValues& values) {
  const auto limit = values.optional_integer("record_cache_mib");
  if (values.boolean("datasets_use_caching")) return limit ? *limit << 20 : data::default_record_cache_bytes();
  if (!limit) return 0;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--record_cache_mib without a cache of records",
                                                        .remedy = "add --datasets_use_caching, or leave it out"});
}

int64_t batches_ahead(const core::FlagValues& values) {
  const int64_t batches = std::max<int64_t>(
      {1, values.integer("datasets_prefetch_buffer_size"), values.integer("multi_device_iterator_max_buffer_size")});
  if (batches <= kMostBatchesAhead) return batches;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "too many batches ahead",
                     .expected = fmt::format("datasets_prefetch_buffer_size and multi_device_iterator_max_buffer_size "
                                             "of {} at most",
                                             kMostBatchesAhead),
                     .actual = fmt::format("{}", batches)});
}

}  // namespace

InputSettings read_input_settings(const core::FlagValues& values, const std::string& dataset, int64_t image_size) {
  InputSettings settings;
  settings.dataset = dataset;
  settings.data_dir = values.text("data_dir");
  settings.data_index_dir = values.text("data_index_dir");
  settings.seed = static_cast<uint64_t>(values.integer("tf_random_seed"));
  settings.input_threads = static_cast<int>(
      values.optional_integer("datasets_num_private_threads").value_or(std::max(1, core::available_cores() / 2)));
  settings.transform = read_image_options(values, dataset, image_size);
  settings.bad_samples = {.policy = data::on_bad_sample(values.text("on_bad_sample")),
                          .budget = values.real("bad_sample_budget")};
  settings.on_unknown_class = data::on_unknown_class(values.text("on_unknown_class"));
  // One batch is always in the making; the others wait to be taken by the devices.
  settings.prefetch_batches = 1;
  if (values.boolean("datasets_use_prefetch")) settings.prefetch_batches += batches_ahead(values);
  const int64_t buffer = values.integer("shuffle_buffer");
  settings.shuffle_buffer = buffer > 0 ? buffer : std::numeric_limits<int64_t>::max();
  settings.record_cache_bytes = record_cache_bytes(values);
  settings.repeat_cached_sample = values.boolean("datasets_repeat_cached_sample");
  settings.decoded_cache_bytes = values.integer("decoded_cache_mib") << 20;
  settings.decoded_cache_dir = values.text("decoded_cache_dir");
  refuse_cache_inside_data(settings);
  settings.decode_on_gpu = values.text("dali_mode") == "GPU";
  settle_scaled_decode(values, settings);
  if (settings.decode_on_gpu) check_decoding_on_gpu(values, settings);
  return settings;
}

namespace {

// The cache keeps labels by sample: another list of classes is another numbering, one without some has other samples.
std::string identity_of_labels(const data::Dataset& dataset) {
  const std::vector<std::string> names = dataset.label_names();
  if (names.empty()) return "";
  return fmt::format(", {} samples of {} classes, {:016x}", dataset.size(), names.size(),
                     core::stable_hash(data::encode_class_names(names)));
}

}  // namespace

std::shared_ptr<const data::Dataset> open_dataset(const InputSettings& settings, data::Subset subset,
                                                  const data::KnownClasses& classes) {
  std::shared_ptr<const data::Dataset> dataset =
      data::datasets().get(settings.dataset)({.directory = settings.data_dir,
                                              .subset = subset,
                                              .index_directory = settings.data_index_dir,
                                              .classes = classes});
  if (settings.record_cache_bytes > 0) {
    dataset = std::make_shared<data::CachedDataset>(std::move(dataset), settings.record_cache_bytes);
  }
  if (settings.decoded_cache_bytes == 0 && settings.decoded_cache_dir.empty()) return dataset;
  data::DecodedCacheOptions cache{.memory_bytes = settings.decoded_cache_bytes,
                                  .exif_orientation = settings.transform.exif_orientation};
  if (!settings.decoded_cache_dir.empty()) {
    cache.directory = core::join_path(settings.decoded_cache_dir, data::subset_name(subset));
    cache.identity = fmt::format(
        "{}, {}{}: {}{}", settings.dataset, data::subset_name(subset), cache.exif_orientation ? ", turned by EXIF" : "",
        data::identity_of_files(*cache.files, data::paths_named(*cache.files, settings.data_dir)),
        identity_of_labels(*dataset));
  }
  return std::make_shared<data::DecodedDataset>(std::move(dataset), cache);
}

data::PipelineOptions pipeline_options(const InputSettings& settings, bool training) {
  data::PipelineOptions options;
  options.height = settings.transform.height;
  options.width = settings.transform.width;
  options.worker_threads = settings.input_threads;
  options.prefetch_batches = static_cast<int>(settings.prefetch_batches);
  options.repeat_cached_sample = settings.repeat_cached_sample;
  options.seed = settings.seed;
  options.order.shuffle = training;
  options.order.shuffle_buffer = settings.shuffle_buffer;
  options.bad_samples = settings.bad_samples;
  return options;
}

}  // namespace trainyard::recipes
