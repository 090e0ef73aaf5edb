#include "trainyard/frontends/options/input_options.h"

#include <algorithm>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/pipeline/bad_samples.h"
#include "trainyard/data/pipeline/sample_order.h"

namespace trainyard::frontends {

void declare_unknown_class_flag(core::FlagTable& table, const char* group) {
  table
      .choice("on_unknown_class", "fail", {"fail", "skip"},
              "what becomes of validation images of a class that the training images, or the checkpoint that is "
              "evaluated, do not have: the run fails, or they are left out")
      .group(group);
}

void declare_source_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Data";
  table
      .text("data_dir", std::nullopt,
            "folder of the data set: TFRecords, WebDataset shards, class folders, or CIFAR-10 in its python or binary "
            "batches; or shards by name: a glob, train-{000..146}.tar; unset: synthetic data")
      .group(kGroup);
  table
      .text("data_index_dir", std::nullopt,
            "folder of the TFRecords' index files NAME.idx (trainyard data index); unset: the folder idx beside the "
            "shards, or theirs")
      .group(kGroup);
  table
      .text("data_name", std::nullopt,
            "imagenet (images of any size), cifar10 or shapes; unset: by the classes of class folders, else the first "
            "of them that is part of data_dir, else by what it holds")
      .group(kGroup);
  declare_unknown_class_flag(table, kGroup);
  table.boolean("use_datasets", true, "which of two input paths to use")
      .group(kGroup)
      .translated("one pipeline serves both, with the same batches");
}

namespace {

void declare_pipeline_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Input pipeline";
  table
      .choice(
          "on_bad_sample", "fail", {"fail", "skip", "substitute"},
          "what becomes of a sample that cannot be read or decoded: the run fails; the next one of the order takes its "
          "place (an exact evaluation leaves it out); another one drawn by the seed takes its place")
      .group(kGroup);
  table
      .real(
          "bad_sample_budget", std::nullopt,
          "bad samples that are skipped or substituted before the run fails: up to 1 as a part of the data set's "
          "samples, at least one of them but for 0, above that as a number; unset: 0.0001, and ten at least (half of a "
          "set of fewer than twenty)")
      .bounds(0, 1e15)
      .group(kGroup);
  table.boolean("datasets_use_prefetch", true, "make the next batches while a step runs").group(kGroup);
  table.integer("datasets_prefetch_buffer_size", 1, "batches kept ready for each device").group(kGroup);
  table.integer("datasets_num_private_threads", std::nullopt, "threads that read and decode; unset: by the cores left")
      .group(kGroup);
  table.boolean("datasets_use_caching", false, "keep the records, as compressed, in memory after they were read once")
      .group(kGroup);
  table
      .integer("record_cache_mib", std::nullopt,
               "how much memory datasets_use_caching may take, in MiB; unset: half of what is free at the start")
      .bounds(1, 1 << 30)
      .group(kGroup);
  table
      .boolean("datasets_repeat_cached_sample", false,
               "feed one record again and again, from memory: tests the pipeline")
      .group(kGroup);
  table.integer("datasets_parallel_interleave_cycle_length", std::nullopt, "files that are read side by side")
      .group(kGroup)
      .translated("the order of records is a function of the seed, whatever is read at the same time");
  table.boolean("datasets_sloppy_parallel_interleave", false, "allow an order that depends on which file is faster")
      .group(kGroup)
      .translated("the order is always a function of the seed, at no cost");
  table.integer("datasets_parallel_interleave_prefetch", std::nullopt, "records read ahead in each file")
      .group(kGroup)
      .translated("records are read by offset, as the order asks for them");
  table
      .integer("multi_device_iterator_max_buffer_size", 1,
               "batches kept on the host for each device: the larger of it and datasets_prefetch_buffer_size counts")
      .group(kGroup);
  table
      .integer("shuffle_buffer", data::OrderOptions().shuffle_buffer,
               "samples among which the next one of a shuffled epoch is drawn; 0: all")
      .bounds(0)
      .group(kGroup);
  table
      .integer("decoded_cache_mib", 0,
               "keep decoded images in memory, up to so many MiB: whole ones, which later epochs only crop")
      .bounds(0, 1 << 30)
      .group(kGroup);
  table
      .text("decoded_cache_dir", std::nullopt,
            "keep decoded images in files in this folder, for later runs too; refused once the data have changed")
      .group(kGroup);
  table
      .choice("dali_mode", "none", {"none", "CPU", "GPU"},
              "where JPEGs of ImageNet become input; GPU: nvJPEG decodes them, and they are cut out, resized and "
              "normalized there in one pass, the same windows; none and CPU: by the input's threads, the same way")
      .group(kGroup);
  table.integer("batch_group_size", 1, "batches that are made at a time; the warm-up is rounded up to a multiple")
      .group(kGroup);
}

void declare_batch_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Batches";
  table
      .real("mixup_alpha", 0,
            "mixup: blend pairs of images and their labels, with shares from Beta(alpha, alpha); 0: no mixup")
      .bounds(0)
      .group(kGroup);
  table
      .real("cutmix_alpha", 0,
            "CutMix: exchange boxes within pairs of images, of areas from Beta(alpha, alpha), and mix their labels by "
            "area; 0: no CutMix")
      .bounds(0)
      .group(kGroup);
  table.real("mixup_prob", std::nullopt, "with mixup_alpha or cutmix_alpha: how likely a pair is mixed; unset: 1")
      .bounds(0, 1)
      .group(kGroup);
  table
      .real("mixup_switch_prob", std::nullopt,
            "with mixup_alpha and cutmix_alpha: how likely a pair that is mixed takes CutMix; unset: 0.5")
      .bounds(0, 1)
      .group(kGroup);
  table
      .integer("repeated_augmentation", 1,
               "how often each sample comes in an epoch, augmented anew each time; an epoch keeps its number of images "
               "and visits fewer samples")
      .bounds(1, 1024)
      .group(kGroup);
  table
      .text("progressive_sizes", std::nullopt,
            "sizes of training images by epoch, \"0:128,20:192,35:224\": 128 x 128 pixels from epoch 0 on, and so on; "
            "evaluations take the last one; unset: image_size throughout")
      .group(kGroup);
}

}  // namespace

void declare_input_flags(core::FlagTable& table) {
  declare_source_flags(table);
  table
      .boolean("split_class_folders", true,
               "class folders without folders train and val: keep a fifth of each class, by a hash of the images' "
               "names, for validation, in trainings and in evaluations; false: each of them takes all images")
      .group("Data");
  declare_image_flags(table);
  declare_pipeline_flags(table);
  declare_batch_flags(table);
}

void declare_synthetic_flag(core::FlagTable& table) {
  table
      .boolean("synthetic", false,
               "take synthetic images, which need no data_dir: to measure speed. `trainyard train` takes them only "
               "where this asks for them")
      .group("Data");
}

namespace {

std::optional<int64_t> record_cache_bytes(const core::FlagValues& values) {
  const auto limit = values.optional_integer("record_cache_mib");
  if (!limit) return std::nullopt;
  if (values.boolean("datasets_use_caching")) return *limit << 20;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--record_cache_mib without a cache of records",
                                                        .remedy = "add --datasets_use_caching, or leave it out"});
}

data::MixOptions read_mix(const core::FlagValues& values) {
  const data::MixOptions mix{.mixup_alpha = values.real("mixup_alpha"),
                             .cutmix_alpha = values.real("cutmix_alpha"),
                             .probability = values.optional_real("mixup_prob").value_or(1),
                             .cutmix_probability = values.optional_real("mixup_switch_prob").value_or(0.5)};
  const auto refuse = [&](const char* flag, bool used, const char* remedy) {
    if (!values.optional_real(flag) || used) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::string("--") + flag + " has nothing to choose", .remedy = remedy});
  };
  refuse("mixup_prob", mix.enabled(), "add --mixup_alpha or --cutmix_alpha, or leave it out");
  refuse("mixup_switch_prob", mix.mixup_alpha > 0 && mix.cutmix_alpha > 0,
         "add --mixup_alpha and --cutmix_alpha, or leave it out");
  return mix;
}

}  // namespace

InputOptions read_input_options(const core::FlagValues& values) {
  InputOptions options;
  options.data_name = values.text("data_name");
  options.data_dir = values.text("data_dir");
  options.data_index_dir = values.text("data_index_dir");
  options.split_class_folders = values.boolean("split_class_folders");
  options.seed = static_cast<uint64_t>(values.integer("tf_random_seed"));
  if (const auto threads = values.optional_integer("datasets_num_private_threads")) {
    options.threads = static_cast<int>(*threads);
  }
  options.images = read_image_options(values);
  options.bad_samples = {.policy = data::on_bad_sample(values.text("on_bad_sample")),
                         .budget = values.optional_real("bad_sample_budget")};
  options.bad_samples.validate();
  options.on_unknown_class = data::on_unknown_class(values.text("on_unknown_class"));
  options.batches_ahead = 0;
  if (values.boolean("datasets_use_prefetch")) {
    options.batches_ahead = std::max<int64_t>(
        {1, values.integer("datasets_prefetch_buffer_size"), values.integer("multi_device_iterator_max_buffer_size")});
  }
  options.shuffle_buffer = values.integer("shuffle_buffer");
  options.cache_records = values.boolean("datasets_use_caching");
  options.record_cache_bytes = record_cache_bytes(values);
  options.repeat_cached_sample = values.boolean("datasets_repeat_cached_sample");
  options.decoded_cache_bytes = values.integer("decoded_cache_mib") << 20;
  options.decoded_cache_dir = values.text("decoded_cache_dir");
  options.decode_on_gpu = values.text("dali_mode") == "GPU";
  options.mix = read_mix(values);
  options.repeated_augmentation = values.integer("repeated_augmentation");
  options.epoch_sizes = data::parse_epoch_sizes(values.text("progressive_sizes"));
  return options;
}

}  // namespace trainyard::frontends
