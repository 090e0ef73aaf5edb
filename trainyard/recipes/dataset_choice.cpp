#include "trainyard/recipes/dataset_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/error.h"
#include "trainyard/core/file_system.h"
#include "trainyard/core/log.h"
#include "trainyard/data/dataset_form.h"

namespace trainyard::recipes {
namespace {

// In the order in which a path is searched for them.
constexpr std::array<std::string_view, 5> kNames = {"imagenet", "cifar10", "librispeech", "coco", "shapes"};

// "" where TFRecords could be anything, or nothing is there.
std::string guess_by_content(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  for (const char* batch : {"data_batch_1", "data_batch_1.bin"}) {
    if (files.exists(core::join_path(directory, batch))) return "cifar10";
  }
  for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
    try {
      const data::StoredImages stored =
          data::find_stored_images({.directory = directory, .subset = subset}, data::subset_name(subset));
      if (stored.form != data::Form::kTfRecords) return "imagenet";
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
    }
  }
  return "";
}

std::string guess_from(const std::string& directory, const std::string& otherwise) {
  for (const std::string_view name : kNames) {
    if (directory.find(name) != std::string::npos) return std::string(name);
  }
  if (std::string name = guess_by_content(directory); !name.empty()) {
    core::log::info("data_dir holds {}: --data_name={}", name == "cifar10" ? "CIFAR-10 batches" : "images by class",
                    name);
    return name;
  }
  if (!otherwise.empty()) return otherwise;
  core::ErrorDetail detail{.problem = "Could not identify name of dataset. Please specify with --data_name option."};
  if (data::paths_named(core::local_file_system(), directory) == std::vector<std::string>{directory} &&
      !core::local_file_system().exists(directory)) {
    detail.where = directory;
    detail.actual = "no such file or directory";
  }
  throw core::Error(core::ErrorCode::kInvalidArgument, std::move(detail));
}

}  // namespace

std::string benchmark_dataset_name(const core::FlagValues& values) {
  return dataset_name_of(values.text("data_name"), values.text("data_dir"));
}

std::string dataset_name_of(std::string name, const std::string& directory, const std::string& otherwise) {
  if (name.empty()) name = directory.empty() ? "imagenet" : guess_from(directory, otherwise);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    auto sorted = kNames;
    std::sort(sorted.begin(), sorted.end());
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("Unknown dataset. Must be one of {}", fmt::join(sorted, ", ")));
  }
  if (name == "coco" || name == "librispeech") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = fmt::format("data set {} is outside what this project covers for now", name),
                       .remedy = "use imagenet, cifar10 or shapes"});
  }
  return name;
}

int64_t label_offset(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes) {
  int64_t offset = 0;
  if (info.name == "imagenet") {
    // Where TFRecords are of another number of classes, their labels are the model's.
    if (dataset.first_label() == 1 && num_classes == info.num_classes) offset = -1;
    if (dataset.first_label() == 0 && num_classes == info.benchmark_classes) offset = 1;
  }
  const auto named = static_cast<int64_t>(dataset.label_names().size());
  if (named + offset > num_classes) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "data set has more classes than the model",
                                                          .expected = fmt::format("at most {}", num_classes - offset),
                                                          .actual = fmt::format("{}", named),
                                                          .remedy = fmt::format("pass --num_classes={}", named)});
  }
  return offset;
}

}  // namespace trainyard::recipes
