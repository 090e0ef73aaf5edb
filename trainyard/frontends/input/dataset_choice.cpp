#include "trainyard/frontends/input/dataset_choice.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/data/datasets/recognise_tfrecords.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/detection/coco_form.h"

namespace trainyard::frontends {
namespace {

// In the order in which a path is searched for them.
constexpr std::array<std::string_view, 5> kNames = {"imagenet", "cifar10", "librispeech", "coco", "shapes"};

// Returns what the directory holds of the first subset that is there; nothing where there are no images.
std::optional<data::StoredImages> look_into(const std::string& directory, core::FileSystem& files) {
  for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
    data::DatasetOptions options;
    options.directory = directory;
    options.subset = subset;
    options.files = &files;
    try {
      return data::find_stored_images(options, data::subset_name(subset));
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
    }
  }
  return std::nullopt;
}

// Any of them: an evaluation needs the test batch alone, and opening the data set says which one is missing.
bool holds_cifar10_batches(const std::string& directory, core::FileSystem& files) {
  static constexpr std::array<const char*, 6> kBatches = {"data_batch_1", "data_batch_2", "data_batch_3",
                                                          "data_batch_4", "data_batch_5", "test_batch"};
  return std::any_of(kBatches.begin(), kBatches.end(), [&](const char* batch) {
    const std::string path = core::join_path(directory, batch);
    return (files.exists(path) && !data::is_directory(files, path)) || files.exists(path + ".bin");
  });
}

// Returns the data set whose classes and images of 32 x 32 pixels these class folders are; else imagenet, any images.
std::string recognise_class_folders(const std::string& root, core::FileSystem& files) {
  std::vector<std::string> classes = data::folders_in(files, root);
  const auto are = [&](std::vector<std::string> known) {
    std::sort(known.begin(), known.end());
    return classes == known;
  };
  const char* const name = are(data::cifar10_class_names()) ? "cifar10" : are(data::shape_names()) ? "shapes" : nullptr;
  if (name == nullptr) return "imagenet";
  const std::vector<std::string> images = data::images_below(files, core::join_path(root, classes.front()));
  if (images.empty()) return name;
  const std::string bytes = files.read_file(images.front());
  auto size = data::read_image_size(std::as_bytes(std::span(bytes)));
  return size.ok() && size.value() == data::ImageSize{32, 32} ? name : "imagenet";
}

// Returns an empty name where nothing is there; says in `because` what was found.
DatasetChoice choose_by_content(const std::string& directory, core::FileSystem& files, std::string& because) {
  if (holds_cifar10_batches(directory, files)) {
    because = "holds CIFAR-10 batches";
    return {.name = "cifar10", .form = std::nullopt};
  }
  if (data::holds_coco(files, directory)) {
    because = "holds COCO's annotations or records";
    return {.name = "coco", .form = std::nullopt};
  }
  const std::optional<data::StoredImages> stored = look_into(directory, files);
  if (!stored) return {};
  DatasetChoice choice{.name = "imagenet", .form = stored->form};
  because = "holds images by class";
  if (stored->form == data::Form::kClassFolders) {
    choice.name = recognise_class_folders(stored->paths.front(), files);
  }
  if (stored->form == data::Form::kTfRecords) {
    // Whoever writes shards side by side may leave some of them empty.
    const std::vector<std::string>& shards = stored->paths;
    const auto filled = std::find_if(shards.begin(), shards.end(),
                                     [&](const std::string& shard) { return files.info(shard).size > 0; });
    choice.name = data::recognise_tfrecords(files, filled == shards.end() ? shards.front() : *filled);
    because = fmt::format("holds TFRecords whose first record is of {}",
                          choice.name == "imagenet" ? "labelled images" : choice.name);
  }
  return choice;
}

std::string require_covered(std::string name) {
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    std::vector<std::string_view> sorted(kNames.begin(), kNames.end());
    std::sort(sorted.begin(), sorted.end());
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("Unknown dataset. Must be one of {}", fmt::join(sorted, ", ")));
  }
  if (name == "librispeech") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = fmt::format("data set {} is outside what this project covers for now", name),
                       .remedy = "use imagenet, cifar10, shapes or coco"});
  }
  return name;
}

}  // namespace

std::optional<std::string> named_dataset(const std::string& name, const std::string& directory) {
  if (!name.empty()) return require_covered(name);
  if (directory.empty()) return "imagenet";
  return std::nullopt;
}

namespace {

// The first known name that is a part of the path, unless class folders are there, which say themselves what they are.
std::optional<std::string> dataset_of_path(const std::string& directory, core::FileSystem& files) {
  for (const std::string_view known : kNames) {
    if (directory.find(known) == std::string::npos) continue;
    if (files.exists(directory) && !holds_cifar10_batches(directory, files) && !data::holds_coco(files, directory)) {
      const std::optional<data::StoredImages> stored = look_into(directory, files);
      if (stored && stored->form == data::Form::kClassFolders) return std::nullopt;
    }
    return require_covered(std::string(known));
  }
  return std::nullopt;
}

}  // namespace

DatasetChoice choose_dataset(const std::string& name, const std::string& directory, const std::string& otherwise,
                             core::FileSystem& files) {
  if (auto named = named_dataset(name, directory)) return {.name = *std::move(named), .form = std::nullopt};
  if (auto named = dataset_of_path(directory, files)) return {.name = *std::move(named), .form = std::nullopt};
  data::require_data(files, directory);
  DatasetChoice choice;
  std::string because;
  try {
    choice = choose_by_content(directory, files, because);
  } catch (const core::Error& error) {
    // Who looks for damage names what the data are taken for.
    if (error.code() != core::ErrorCode::kCorruptData || otherwise.empty()) throw;
  }
  if (!choice.name.empty()) {
    core::log::info("data_dir {}: --data_name={}", because, choice.name);
    return choice;
  }
  if (!otherwise.empty()) return {.name = require_covered(otherwise), .form = std::nullopt};
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "Could not identify name of dataset. Please specify with --data_name option.",
                     .where = directory,
                     .actual = "no TFRecords, WebDataset shards, class folders or CIFAR-10 batches"});
}

DatasetChoice choose_dataset(const InputOptions& input, core::FileSystem& files) {
  if (input.labels_csv.empty() || input.data_dir.empty()) {
    return choose_dataset(input.data_name, input.data_dir, "", files);
  }
  data::require_data(files, input.data_dir);
  const std::string name = input.data_name.empty() ? "imagenet" : require_covered(input.data_name);
  return {.name = name, .form = data::Form::kClassFolders};
}

std::string folder_label(const DatasetChoice& choice, const std::string& directory, core::FileSystem& files) {
  std::optional<data::Form> form = choice.form;
  if (!form) {
    if (const auto stored = look_into(directory, files)) form = stored->form;
  }
  if (form != data::Form::kClassFolders) return choice.name;
  // "." and "photos/" have names, too.
  const std::filesystem::path full = std::filesystem::absolute(directory).lexically_normal();
  std::string name = (full.has_filename() ? full : full.parent_path()).filename().string();
  return name.empty() ? choice.name : name;
}

int64_t usual_image_size(const std::string& dataset) {
  switch (models::find_dataset(dataset).family) {
    case models::DatasetFamily::kCifar10:
      return 32;
    case models::DatasetFamily::kCoco:
      return 300;
    case models::DatasetFamily::kImagenet:
      break;
  }
  return 224;
}

int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes) {
  const auto named = static_cast<int64_t>(dataset.label_names().size());
  int64_t offset = 0;
  if (info.name == "imagenet") {
    const bool background = num_classes == info.benchmark_classes;
    // Where TFRecords without names are of another number of classes, their labels are the model's.
    const bool counted = num_classes == info.num_classes || (named > 0 && !background);
    if (dataset.first_label() == 1 && counted) offset = -1;
    if (dataset.first_label() == 0 && background) offset = 1;
  }
  const int64_t first_output = dataset.first_label() + offset;
  if (named > 0 && named + first_output > num_classes) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "data set has more classes than the model",
                       .expected = fmt::format("at most {}", num_classes - first_output),
                       .actual = fmt::format("{}", named),
                       .remedy = fmt::format("pass --num_classes={}", named)});
  }
  return offset;
}

}  // namespace trainyard::frontends
