#include "trainyard/frontends/options/input_flags.h"

#include <algorithm>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/image_flags.h"

namespace trainyard::frontends {
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
