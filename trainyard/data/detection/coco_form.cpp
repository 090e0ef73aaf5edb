#include "trainyard/data/detection/coco_form.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::string_view kPrefix = "instances_", kSuffix = ".json", kUsualYear = "2017";

const char* short_name(Subset subset) {
  return subset == Subset::kTrain ? "train" : "val";
}

// Returns the years, or what else follows "train" or "val", of the annotations in DIR/annotations.
std::vector<std::string> annotated_years(core::FileSystem& files, const std::string& directory, Subset subset) {
  std::vector<std::string> years;
  const std::string folder = core::join_path(directory, "annotations");
  if (!is_directory(files, folder)) return years;
  const std::string begin = fmt::format("{}{}", kPrefix, short_name(subset));
  for (const std::string& name : files.list(folder)) {
    if (!name.starts_with(begin) || !name.ends_with(kSuffix) || name.size() < begin.size() + kSuffix.size()) continue;
    years.push_back(name.substr(begin.size(), name.size() - begin.size() - kSuffix.size()));
  }
  return years;
}

bool holds_annotations(core::FileSystem& files, const std::string& directory) {
  return !annotated_years(files, directory, Subset::kTrain).empty() ||
         !annotated_years(files, directory, Subset::kValidation).empty();
}

StoredCoco stored_json(const DatasetOptions& options, const std::vector<std::string>& years) {
  core::FileSystem& files = *options.files;
  std::string year = years.front();
  for (const std::string& each : years) {
    if (each == kUsualYear) year = each;
  }
  if (years.size() > 1 && year != kUsualYear) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there are annotations of several years",
                                              .where = core::join_path(options.directory, "annotations"),
                                              .expected = "those of 2017, or of one year",
                                              .actual = fmt::format("{}", fmt::join(years, ", ")),
                                              .remedy = "move the others elsewhere"});
  }
  const std::string subset = short_name(options.subset) + year;
  StoredCoco stored{.annotations = core::join_path(core::join_path(options.directory, "annotations"),
                                                   fmt::format("{}{}{}", kPrefix, subset, kSuffix))};
  for (const std::string& folder : {subset, core::join_path("images", subset)}) {
    stored.images = core::join_path(options.directory, folder);
    if (is_directory(files, stored.images)) return stored;
  }
  throw Error(ErrorCode::kNotFound, {.problem = "annotations have no folder of images",
                                     .where = stored.annotations,
                                     .expected = core::join_path(options.directory, subset),
                                     .actual = "no such folder",
                                     .remedy = "unpack the images there"});
}

}  // namespace

StoredCoco find_coco(const DatasetOptions& options) {
  core::FileSystem& files = *options.files;
  if (options.shards.empty() && is_directory(files, options.directory)) {
    require_finished(files, options.directory);
    const std::vector<std::string> years = annotated_years(files, options.directory, options.subset);
    if (!years.empty()) return stored_json(options, years);
    if (holds_annotations(files, options.directory)) {
      throw NoSuchSubset({.problem = "the directory holds no annotations of the subset",
                          .where = core::join_path(options.directory, "annotations"),
                          .expected = fmt::format("{}{}{}{}", kPrefix, short_name(options.subset), kUsualYear, kSuffix),
                          .actual = "those of the other subset"});
    }
  }
  const std::string name(subset_name(options.subset));
  const std::array<std::string, 5> prefixes = {name, fmt::format("coco_{}", name), fmt::format("coco_{}.record", name),
                                               fmt::format("coco_{}", short_name(options.subset)),
                                               fmt::format("coco_{}.record", short_name(options.subset))};
  for (size_t i = 0;; ++i) {
    try {
      StoredImages stored = find_stored_images(
          options, prefixes[i],
          ", or COCO's folders annotations, train2017 and val2017; TFRecords may also be called coco_train-*-of-*");
      if (stored.form == Form::kTfRecords) return {.shards = std::move(stored.paths)};
      throw NoSuchSubset({.problem = "the directory holds no COCO data set",
                          .where = options.directory,
                          .expected = "annotations/instances_train2017.json and train2017, or TFRecords",
                          .actual = "images without boxes"});
    } catch (const NoSuchSubset&) {
      if (i + 1 == prefixes.size()) throw;
    }
  }
}

bool holds_coco(core::FileSystem& files, const std::string& directory) {
  if (!is_directory(files, directory)) return false;
  if (holds_annotations(files, directory)) return true;
  const std::vector<std::string> names = files.list(directory);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return (name.starts_with("coco_train") || name.starts_with("coco_val")) && name.find("-of-") != std::string::npos;
  });
}

}  // namespace trainyard::data
