#include "trainyard/frontends/options/input_settings.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/cache/decoded_dataset.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/device/device_transform.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::frontends {
namespace {

// Which pixels a sample has would depend on what is in the cache, or on who decodes it: both, where they are asked for,
// are refused.
void settle_scaled_decode(const InputOptions& asked, InputSettings& settings) {
  const bool cached = settings.decoded_cache_bytes > 0 || !settings.decoded_cache_dir.empty();
  if (!settings.transform.scaled_decode || (!cached && !settings.decode_on_gpu)) return;
  if (!asked.images.scaled_decode) {
    settings.transform.scaled_decode = settings.transform.eval_scaled_decode = false;
    return;
  }
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = cached ? "--scaled_decode does not go with a cache of decoded images, which keeps them at full size"
                         : "--scaled_decode does not go with --dali_mode=GPU, which decodes at full size",
       .remedy = "leave one of the two out"});
}

void check_decoding_on_gpu(const InputSettings& settings, int replicas) {
  const auto refuse = [](bool holds, const std::string& why, const std::string& remedy) {
    if (!holds) return;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "--dali_mode=GPU cannot be used", .actual = why, .remedy = remedy});
  };
  refuse(settings.synthetic(), "there are no files to decode", "pass --data_dir, or leave it out");
  refuse(settings.dataset != "imagenet", "data set " + settings.dataset, "leave it out: it is for JPEGs of any size");
  refuse(settings.repeat_cached_sample, "--datasets_repeat_cached_sample", "leave one of them out");
  refuse(replicas > 1, std::to_string(replicas) + " GPUs in one process", "leave it out: one GPU decodes");
  refuse(settings.mix.enabled(), "--mixup_alpha or --cutmix_alpha", "leave one of them out: the CPU mixes images");
  refuse(!settings.epoch_sizes.empty(), "--progressive_sizes", "leave one of them out");
  data::check_device_transform(settings.transform);
}

// The preprocessor's size is one for images of 224 x 224.
void say_eval_resize_size(const ImageOptions& asked, const data::TransformOptions& settled) {
  if (asked.trained && !asked.input_preprocessor) return;  // what differs from the model's is said elsewhere
  const int64_t of_preset = data::input_presets().get(asked.preprocessor()).eval_resize_size;
  if (asked.eval_resize_size || settled.eval_resize_size == of_preset) return;
  core::log::info(
      "evaluation scales the shorter side of images to {} pixels for a model of {}x{}: --input_preprocessor={} says {} "
      "for "
      "one of 224x224; --eval_resize_size sets another",
      settled.eval_resize_size, settled.height, settled.width, asked.preprocessor(), of_preset);
}

// With one slash at the end.
std::string real_folder(const std::string& path) {
  return (std::filesystem::path(core::real_path(path)) / "").string();
}

// The cache would change what it is compared with.
void refuse_cache_inside_data(const InputSettings& settings) {
  if (settings.data_dir.empty() || settings.decoded_cache_dir.empty()) return;
  if (!real_folder(settings.decoded_cache_dir).starts_with(real_folder(settings.data_dir))) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--decoded_cache_dir is inside --data_dir",
                                                        .actual = settings.decoded_cache_dir,
                                                        .remedy = "name a folder elsewhere"});
}

void refuse_without_data(const InputSettings& settings) {
  if (!settings.synthetic()) return;
  const auto refuse_if = [](bool given, const std::string& flag) {
    if (!given) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = flag + " has no use without data", .remedy = "pass --data_dir, too"});
  };
  refuse_if(!settings.data_index_dir.empty(), "--data_index_dir");
  refuse_if(!settings.labels_csv.empty(), "--labels_csv");
  refuse_if(settings.balanced_sampling, "--balanced_sampling");
  refuse_if(settings.division && !settings.division_is_saved,
            settings.division && settings.division->folds > 0 ? "--folds" : "--validation_split");
}

}  // namespace

InputSettings settle_input(const InputOptions& options, const std::string& dataset, nn::Size2d image_size,
                           int replicas) {
  InputSettings settings;
  settings.dataset = dataset;
  settings.data_dir = options.data_dir;
  settings.data_index_dir = options.data_index_dir;
  settings.split_class_folders = options.split_class_folders;
  settings.division = options.division;
  settings.division_is_saved = options.division_is_saved;
  settings.labels_csv = options.labels_csv;
  settings.on_unlabelled_file = options.on_unlabelled_file;
  settings.balanced_sampling = options.balanced_sampling;
  settings.seed = options.seed;
  settings.input_threads = options.threads.value_or(std::max(1, core::available_cores() / 2));
  settings.transform = options.images.transform(dataset, image_size);
  settings.preprocessor = options.images.preprocessor();
  settings.bad_samples = options.bad_samples;
  settings.on_unknown_class = options.on_unknown_class;
  // One batch is always in the making; the others wait to be taken by the devices.
  settings.prefetch_batches = 1 + options.batches_ahead;
  settings.shuffle_buffer = options.shuffle_buffer > 0 ? options.shuffle_buffer : std::numeric_limits<int64_t>::max();
  if (options.cache_records) {
    settings.record_cache_bytes =
        options.record_cache_bytes.value_or(data::default_record_cache_bytes() / parallel::processes_on_machine());
  }
  settings.repeat_cached_sample = options.repeat_cached_sample;
  settings.decoded_cache_bytes = options.decoded_cache_bytes;
  settings.decoded_cache_dir = options.decoded_cache_dir;
  refuse_cache_inside_data(settings);
  if (!settings.synthetic() && dataset != "coco") say_eval_resize_size(options.images, settings.transform);
  refuse_without_data(settings);
  settings.decode_on_gpu = options.decode_on_gpu;
  settings.mix = options.mix;
  settings.repeated_augmentation = options.repeated_augmentation;
  settings.epoch_sizes = options.epoch_sizes;
  settings.mix.validate();
  settle_scaled_decode(options, settings);
  if (settings.decode_on_gpu) check_decoding_on_gpu(settings, replicas);
  if (options.images.trained) warn_of_differences(*options.images.trained, settings.transform);
  return settings;
}

namespace {

// The cache keeps labels by sample: another list of classes is another numbering, one without some has other samples,
// another division has them at other places.
std::string identity_of_labels(const data::Dataset& dataset, const InputSettings& settings) {
  std::string identity;
  if (const std::vector<std::string> names = dataset.label_names(); !names.empty()) {
    identity = fmt::format(", {} samples of {} classes, {:016x}", dataset.size(), names.size(),
                           core::stable_hash(data::encode_class_names(names)));
  }
  if (settings.division) identity += ", " + data::division_text(*settings.division);
  if (!settings.labels_csv.empty()) {
    identity +=
        fmt::format(", labels {:016x}", core::stable_hash(settings.file_system().read_file(settings.labels_csv)));
  }
  return identity;
}

void refuse_decoded_label_sets(const data::Dataset& dataset, const std::string& name) {
  const bool boxes = name == "coco";
  if (!dataset.has_label_sets() && !boxes) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "a cache of decoded images keeps one label an image",
                     .actual = boxes ? "boxes of objects (coco)" : "several labels an image (--labels_csv)",
                     .remedy = "leave --decoded_cache_mib and --decoded_cache_dir out"});
}

}  // namespace

data::DatasetOptions dataset_options(const InputSettings& settings, data::Subset subset) {
  return {.directory = settings.data_dir,
          .subset = subset,
          .index_directory = settings.data_index_dir,
          .files = &settings.file_system(),
          .divide = settings.split_class_folders,
          .division = settings.division,
          .requires_division = settings.division && !settings.division_is_saved,
          .labels_csv = settings.labels_csv,
          .on_unlabelled_file = settings.on_unlabelled_file};
}

std::shared_ptr<const data::Dataset> open_dataset(const InputSettings& settings, data::Subset subset,
                                                  const data::KnownClasses& classes) {
  struct Opened {
    std::shared_ptr<core::FileSystem> files;  // outlives the data set, which reads from it
    std::unique_ptr<data::Dataset> dataset;
  };
  data::DatasetOptions options = dataset_options(settings, subset);
  options.classes = classes;
  const auto opened = std::make_shared<Opened>(Opened{settings.files, data::datasets().get(settings.dataset)(options)});
  std::shared_ptr<const data::Dataset> dataset(opened, opened->dataset.get());
  if (settings.record_cache_bytes > 0) {
    dataset = std::make_shared<data::CachedDataset>(std::move(dataset), settings.record_cache_bytes);
  }
  if (settings.decoded_cache_bytes == 0 && settings.decoded_cache_dir.empty()) return dataset;
  refuse_decoded_label_sets(*dataset, settings.dataset);
  data::DecodedCacheOptions cache{.memory_bytes = settings.decoded_cache_bytes,
                                  .exif_orientation = settings.transform.exif_orientation};
  if (!settings.decoded_cache_dir.empty()) {
    cache.directory = core::join_path(settings.decoded_cache_dir, data::subset_name(subset));
    cache.identity = fmt::format(
        "{}, {}{}: {}{}", settings.dataset, data::subset_name(subset), cache.exif_orientation ? ", turned by EXIF" : "",
        data::identity_of_files(settings.file_system(), data::paths_named(settings.file_system(), settings.data_dir)),
        identity_of_labels(*dataset, settings));
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
  if (training) {
    options.mix = settings.mix;
    options.repeated_augmentation = settings.repeated_augmentation;
  }
  return options;
}

}  // namespace trainyard::frontends
