#include "trainyard/recipes/dataset_choice.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/recognise_tfrecords.h"

namespace trainyard::recipes {
namespace {

// In the order in which a path is searched for them.
constexpr std::array<std::string_view, 5> kNames = {"imagenet", "cifar10", "librispeech", "coco", "shapes"};

struct Guess {
  std::string name;  // "" where nothing is there
  std::string because;
};

Guess guess_by_content(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  for (const char* batch : {"data_batch_1", "data_batch_1.bin"}) {
    if (files.exists(core::join_path(directory, batch))) return {"cifar10", "holds CIFAR-10 batches"};
  }
  for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
    data::DatasetOptions options;
    options.directory = directory;
    options.subset = subset;
    try {
      const data::StoredImages stored = data::find_stored_images(options, data::subset_name(subset));
      if (stored.form != data::Form::kTfRecords) return {"imagenet", "holds images by class"};
      std::string name = data::recognise_tfrecords(files, stored.paths.front());
      std::string because =
          fmt::format("holds TFRecords whose first record is of {}", name == "imagenet" ? "labelled images" : name);
      return {std::move(name), std::move(because)};
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
    }
  }
  return {};
}

bool holds_class_folders(const std::string& directory) {
  for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
    try {
      const data::DatasetOptions options{.directory = directory, .subset = subset};
      return data::find_stored_images(options, data::subset_name(subset)).form == data::Form::kClassFolders;
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
    }
  }
  return false;
}

std::string guess_from(const std::string& directory, const std::string& otherwise, bool tells) {
  for (const std::string_view name : kNames) {
    if (directory.find(name) != std::string::npos) return std::string(name);
  }
  data::require_data(core::local_file_system(), directory);
  Guess guess;
  try {
    guess = guess_by_content(directory);
  } catch (const core::Error& error) {
    // Who looks for damage names what the data are taken for.
    if (error.code() != core::ErrorCode::kCorruptData || otherwise.empty()) throw;
  }
  if (!guess.name.empty()) {
    if (tells) core::log::info("data_dir {}: --data_name={}", guess.because, guess.name);
    return guess.name;
  }
  if (!otherwise.empty()) return otherwise;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "Could not identify name of dataset. Please specify with --data_name option.",
                     .where = directory,
                     .actual = "no TFRecords, WebDataset shards, class folders or CIFAR-10 batches"});
}

}  // namespace

std::string benchmark_dataset_name(const core::FlagValues& values, bool tells) {
  return dataset_name_of(values.text("data_name"), values.text("data_dir"), "", tells);
}

std::string dataset_name_of(std::string name, const std::string& directory, const std::string& otherwise, bool tells) {
  if (name.empty()) name = directory.empty() ? "imagenet" : guess_from(directory, otherwise, tells);
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

std::string dataset_label(const core::FlagValues& values, const std::string& dataset, Dialect dialect) {
  const std::string directory = values.text("data_dir");
  if (directory.empty()) return dataset + " (synthetic)";
  if (dialect == Dialect::kTfCnnBenchmarks || !values.text("data_name").empty() || !holds_class_folders(directory)) {
    return dataset;
  }
  // "." and "photos/" have names, too.
  const std::filesystem::path full = std::filesystem::absolute(directory).lexically_normal();
  const std::string name = (full.has_filename() ? full : full.parent_path()).filename().string();
  return name.empty() ? dataset : name;
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
