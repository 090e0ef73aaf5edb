#include "trainyard/frontends/paddle/loader.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/sources/mapped_source.h"
#include "trainyard/data/sources/retried_source.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::program {
namespace {

InputSettings settings_of(const Arguments& args, Mode mode) {
  InputOptions options{.data_name = "imagenet",
                       .data_dir = args.image_root,
                       .seed = static_cast<uint64_t>(args.dali_random_seed),
                       .threads = static_cast<int>(args.dali_num_threads)};
  const auto range = [](const std::vector<double>& numbers) {
    return ImageOptions::Range{static_cast<float>(numbers.at(0)), static_cast<float>(numbers.at(1))};
  };
  const auto pixels = [&](const std::vector<double>& numbers) {
    data::Rgb rgb{};
    for (size_t c = 0; c < rgb.size(); ++c) rgb[c] = static_cast<float>(numbers.at(c) / args.normalize_scale);
    return rgb;
  };
  options.shuffle_buffer = 0;  // all
  if (!args.trained) options.images.input_preprocessor = "paddle";
  options.images.random_crop_area = range(args.rand_crop_scale);
  options.images.random_crop_aspect_ratio = range(args.rand_crop_ratio);
  if (args.trained) options.images.trained = *args.trained;
  if (options.images.trained && mode == Mode::kEval && args.trains()) options.images.trained->origin.clear();  // said
  const bool says_normalization =
      args.says("normalize_scale") || args.says("normalize_mean") || args.says("normalize_std");
  if (says_normalization || !args.trained) {
    options.images.normalization = "mean_std";
    options.images.image_mean = pixels(args.normalize_mean);
    options.images.image_std = pixels(args.normalize_std);
  }
  if (args.says("resize_short") || !args.trained) {
    options.images.eval_resize_size = args.resize_short;
  }
  return settle_input(options, "imagenet", args.crop_size, static_cast<int>(std::ssize(args.places)));
}

// image_root must hold the folder of the subset: a data set of another form would be found there, too.
void require_folder(const Arguments& args, const char* name) {
  const std::string folder = core::join_path(args.image_root, name);
  if (core::local_file_system().exists(folder)) return;
  throw core::Error(core::ErrorCode::kNotFound,
                    {.problem = "there are no images",
                     .where = folder,
                     .expected = "a folder with a folder of images for each class",
                     .remedy = "name the folder above train and val as --image_root, or leave its value empty for "
                               "synthetic images"});
}

}  // namespace

Loader::Loader(std::shared_ptr<data::BatchSource> source, int64_t steps, std::shared_ptr<const LoadedData> data)
    : source_(data::retried(std::move(source))),
      steps_(steps),
      data_(data ? std::move(data) : std::make_shared<const LoadedData>()) {}

Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device) {
  return build_dataloader(args, mode, device, ClassNames());
}

Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device, const Loader& training) {
  return build_dataloader(args, mode, device, training.data().classes);
}

Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device, const ClassNames& known) {
  const bool training = mode == Mode::kTrain;
  const models::DatasetInfo& info = models::find_dataset("imagenet");
  const InputSettings settings = settings_of(args, mode);
  const int places = static_cast<int>(std::ssize(args.places)), replicas = training ? places : 1;
  ImageSourceOptions options{.num_classes = args.num_of_class,
                             .batch_size = args.batch_size * (training ? 1 : places),
                             .replicas = replicas,
                             .first_replica = device.rank() * replicas,
                             .total_replicas = device.ranks() * replicas,
                             .training = training,
                             .repeat = training};
  LoadedData data{.input = settings.transform, .folder = args.image_root};
  int64_t samples = training ? info.train_examples : info.validation_examples;
  if (settings.synthetic()) {
    options.epoch_size = samples;
  } else {
    require_folder(args, training ? "train" : "val");
    options.dataset = open_dataset(settings, training ? data::Subset::kTrain : data::Subset::kValidation,
                                   {.names = known.names, .origin = "the training images"});
    samples = options.dataset->size();
    if (const int64_t classes = std::ssize(options.dataset->label_names()); classes > args.num_of_class) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "the images have more classes than the model has outputs",
                         .where = args.image_root,
                         .expected = fmt::format("at most {}", args.num_of_class),
                         .actual = std::to_string(classes),
                         .remedy = fmt::format("pass --num_of_class={}", classes)});
    }
    data.classes = class_names_of(*options.dataset, info, args.num_of_class);
    data.class_count = std::max<int64_t>(std::ssize(data.classes.names),
                                         options.dataset->label_count() - options.dataset->first_label());
  }
  std::shared_ptr<data::BatchSource> source = make_image_source(settings, device, options);
  if (args.dali_output_fp16)
    source = std::make_shared<data::MappedSource>(std::move(source), [](data::Batch& batch) {
      batch.tensors.set("images", batch.images().to(at::kHalf));  // as --dali_output_fp16 asks for them
    });
  const int64_t each = options.batch_size * options.total_replicas;
  return {std::move(source), (samples + each - 1) / each, std::make_shared<const LoadedData>(std::move(data))};
}

}  // namespace trainyard::frontends::program
