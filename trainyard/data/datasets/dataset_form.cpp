#include "trainyard/data/datasets/dataset_form.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/tfrecord_dataset.h"
#include "trainyard/data/datasets/webdataset.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr size_t kMaxPaths = 1'000'000;

const std::vector<std::string>& words_of(Subset subset) {
  static const std::vector<std::string> train = {"train"}, validation = {"validation", "val", "test"};
  return subset == Subset::kTrain ? train : validation;
}

Subset other(Subset subset) {
  return subset == Subset::kTrain ? Subset::kValidation : Subset::kTrain;
}

// Whether one of the name's words, between what are no letters, is one of the subset's: "imagenet-train-000.tar".
bool names_subset(std::string_view name, Subset subset) {
  const std::vector<std::string>& words = words_of(subset);
  std::string word;
  for (size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && std::isalpha(static_cast<unsigned char>(name[i])) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
      continue;
    }
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
    word.clear();
  }
  return false;
}

// "train-00000-of-00002" for the prefix "train".
bool is_tfrecord_shard(std::string_view name, std::string_view prefix) {
  return name.starts_with(fmt::format("{}-", prefix)) &&
         name.find("-of-", prefix.size() + 1) != std::string_view::npos && !name.ends_with(".idx");
}

bool is_tar(std::string_view name) {
  return name.ends_with(".tar");
}

std::optional<StoredImages> shards_of(std::vector<std::string> paths) {
  if (paths.empty()) return std::nullopt;
  const auto tars = std::count_if(paths.begin(), paths.end(), is_tar);
  if (tars != 0 && tars != static_cast<std::ptrdiff_t>(paths.size())) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "shards of different kinds",
                                              .where = paths.front(),
                                              .expected = "either all or none with .tar",
                                              .actual = fmt::format("{} of {}", tars, paths.size())});
  }
  return StoredImages{tars > 0 ? Form::kWebDataset : Form::kTfRecords, std::move(paths)};
}

std::optional<StoredImages> shards_in(core::FileSystem& files, const std::string& directory, std::string_view prefix,
                                      const std::function<bool(std::string_view)>& tar_belongs) {
  std::vector<std::string> records, tars;
  for (const std::string& name : files.list(directory)) {
    if (is_tfrecord_shard(name, prefix)) records.push_back(core::join_path(directory, name));
    if (is_tar(name) && tar_belongs(name)) tars.push_back(core::join_path(directory, name));
  }
  return shards_of(records.empty() ? std::move(tars) : std::move(records));
}

std::optional<StoredImages> look_into(const DatasetOptions& options, std::string_view prefix) {
  core::FileSystem& files = *options.files;
  // A tar without a word for a subset belongs to the training images.
  const auto belongs = [&](std::string_view name) {
    return names_subset(name, options.subset) ||
           (options.subset == Subset::kTrain && !names_subset(name, Subset::kValidation));
  };
  if (auto shards = shards_in(files, options.directory, prefix, belongs)) return shards;
  const auto own = subset_folders(files, options.directory, options.subset);
  if (!own.empty()) {
    if (auto shards = shards_in(files, own[0], prefix, [](std::string_view) { return true; })) return shards;
    if (!folders_in(files, own[0]).empty()) return StoredImages{Form::kClassFolders, {own[0]}};
  } else if (subset_folders(files, options.directory, other(options.subset)).empty() &&
             holds_class_folders(files, options.directory)) {
    return StoredImages{Form::kClassFolders, {options.directory}};
  }
  return std::nullopt;
}

std::optional<StoredImages> named_shards(const DatasetOptions& options) {
  std::vector<std::string> paths = paths_named(*options.files, options.directory);
  std::erase_if(paths, [&](const std::string& path) {
    const std::string name = core::base_name(path);
    return names_subset(name, other(options.subset)) && !names_subset(name, options.subset);
  });
  return shards_of(std::move(paths));
}

// "12 files (a, b, c, ...) and 1 folder (x)"
std::string inventory(core::FileSystem& files, const std::string& directory) {
  const auto listed = [](const char* what, const std::vector<std::string>& names) {
    constexpr size_t kShownNames = 5;
    const std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kShownNames));
    return fmt::format("{} {}{}{}{}", names.size(), what, names.size() == 1 ? "" : "s",
                       names.empty() ? "" : fmt::format(" ({}", fmt::join(shown, ", ")),
                       names.empty()                ? ""
                       : names.size() > kShownNames ? ", ...)"
                                                    : ")");
  };
  std::vector<std::string> folders, others;
  for (const std::string& name : files.list(directory)) {
    (is_directory(files, core::join_path(directory, name)) ? folders : others).push_back(name);
  }
  return fmt::format("{} and {}", listed("file", others), listed("folder", folders));
}

}  // namespace

std::string_view tfrecord_prefix(std::string_view dataset, Subset subset) {
  return subset == Subset::kValidation && dataset == "cifar10" ? "test" : subset_name(subset);
}

int64_t tfrecord_first_label(std::string_view dataset) {
  return dataset == "imagenet" ? 1 : 0;
}

std::vector<std::string> expand_braces(const std::string& text) {
  const size_t open = text.find('{');
  if (open == std::string::npos) return {text};
  const size_t close = text.find('}', open);
  if (close == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "braces in a path do not close", .where = text});
  }
  const std::string inside = text.substr(open + 1, close - open - 1);
  std::vector<std::string> choices;
  if (const size_t dots = inside.find(".."); dots != std::string::npos) {
    const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2);
    uint64_t from = 0, to = 0;
    const auto a = std::from_chars(first.data(), first.data() + first.size(), from);
    const auto b = std::from_chars(last.data(), last.data() + last.size(), to);
    if (a.ec != std::errc() || a.ptr != first.data() + first.size() || b.ec != std::errc() ||
        b.ptr != last.data() + last.size() || from > to || to - from >= kMaxPaths) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "range in a path is malformed",
                                                .where = text,
                                                .expected = "{000..146}, at most a million numbers",
                                                .actual = fmt::format("{{{}}}", inside)});
    }
    for (uint64_t i = from; i <= to; ++i) choices.push_back(fmt::format("{:0{}}", i, first.size()));
  } else {
    for (size_t begin = 0; begin <= inside.size();) {
      const size_t end = std::min(inside.find(',', begin), inside.size());
      choices.push_back(inside.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::vector<std::string> paths;
  const std::vector<std::string> rests = expand_braces(text.substr(close + 1));
  if (choices.size() * rests.size() > kMaxPaths) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "braces in a path stand for too many files", .where = text});
  }
  for (const std::string& choice : choices) {
    for (const std::string& rest : rests) paths.push_back(text.substr(0, open) + choice + rest);
  }
  return paths;
}

std::vector<std::string> paths_named(core::FileSystem& files, const std::string& data) {
  std::vector<std::string> paths;
  for (const std::string& path : expand_braces(data)) {
    const std::string name = core::base_name(path), directory = core::parent_path(path);
    if (files.exists(path) || name.find_first_of("*?[") == std::string::npos) {
      paths.push_back(path);  // opening it says when it is missing
      continue;
    }
    if (!is_directory(files, directory)) continue;
    for (const std::string& found : files.list(directory)) {
      if (::fnmatch(name.c_str(), found.c_str(), FNM_PERIOD) == 0 && !found.ends_with(".idx")) {
        paths.push_back(core::join_path(directory, found));
      }
    }
  }
  return paths;
}

std::vector<std::string> subset_folders(core::FileSystem& files, const std::string& directory, Subset subset) {
  std::vector<std::string> folders;
  for (const std::string& word : words_of(subset)) {
    std::string path = core::join_path(directory, word);
    if (is_directory(files, path)) folders.push_back(std::move(path));
  }
  return folders;
}

bool subsets_are_one(const DatasetOptions& options, std::string_view prefix) {
  try {
    const StoredImages stored = find_stored_images(options, prefix);
    return stored.form == Form::kClassFolders && stored.paths.front() == options.directory;
  } catch (const NoSuchSubset&) {
    return false;  // none of this subset, or a form of this set's own
  }
}

void require_data(core::FileSystem& files, const std::string& directory) {
  const bool pattern = directory.find_first_of("*?[{") != std::string::npos;
  if (pattern || files.exists(directory)) return;
  throw Error(ErrorCode::kNotFound, {.problem = "data directory does not exist",
                                     .where = directory,
                                     .remedy = "pass the directory that holds the data set as --data_dir"});
}

StoredImages find_stored_images(const DatasetOptions& options, std::string_view prefix, std::string_view other_forms) {
  core::FileSystem& files = *options.files;
  if (auto shards = shards_of(options.shards)) return *std::move(shards);
  const bool directory = is_directory(files, options.directory);
  if (!directory) require_data(files, options.directory);
  if (auto found = directory ? look_into(options, prefix) : named_shards(options)) return *std::move(found);
  if (!directory) {
    throw NoSuchSubset({.problem = fmt::format("Found no files in --data_dir matching: {}", options.directory),
                        .expected = fmt::format("shards of the {} images", subset_name(options.subset)),
                        .actual = "none"});
  }
  throw NoSuchSubset({.problem = fmt::format("Found no files in --data_dir matching: {}",
                                             core::join_path(options.directory, fmt::format("{}-*-of-*", prefix))),
                      .actual = inventory(files, options.directory),
                      .remedy = fmt::format(
                          "pass the directory that holds the data set as --data_dir: TFRecords of that name, "
                          "WebDataset shards {}*.tar, or a folder {} of class folders{}",
                          words_of(options.subset).front(), fmt::join(words_of(options.subset), " or "), other_forms)});
}

void refuse_index_files(const DatasetOptions& options) {
  if (options.index_directory.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "--data_index_dir has no use: only TFRecords have index files",
                                            .where = options.directory,
                                            .expected = "TFRecords",
                                            .actual = "a data set of another form",
                                            .remedy = "leave it out"});
}

std::unique_ptr<Dataset> open_stored_images(const DatasetOptions& options, std::string_view prefix,
                                            const Labels& labels, std::string_view other_forms) {
  StoredImages stored = find_stored_images(options, prefix, other_forms);
  if (stored.form != Form::kTfRecords) refuse_index_files(options);
  Labels named = labels;
  if (stored.form != Form::kClassFolders) {
    std::vector<std::string> names = read_class_names(*options.files, core::parent_path(stored.paths.front()));
    if (!names.empty()) named = {labels.first + std::ssize(names), std::move(names), labels.first};
  }
  switch (stored.form) {
    case Form::kTfRecords:
      return std::make_unique<TfRecordDataset>(options, stored.paths, named);
    case Form::kWebDataset:
      return std::make_unique<WebDataset>(options, stored.paths, named.count - named.first, named.names);
    case Form::kClassFolders:
      return std::make_unique<FolderDataset>(options, stored.paths.front());
  }
  throw Error(ErrorCode::kInternal, "form of a data set without a reader");
}

std::vector<std::string> training_class_names(const std::string& name, DatasetOptions options) {
  options.subset = Subset::kTrain;
  options.classes = {};
  try {
    const StoredImages stored = find_stored_images(options, tfrecord_prefix(name, options.subset));
    if (stored.form == Form::kClassFolders) return class_order(*options.files, stored.paths.front());
    if (stored.form == Form::kWebDataset) return datasets().get(name)(options)->label_names();
  } catch (const NoSuchSubset&) {
    // CIFAR-10's batches, or validation images alone.
  }
  return {};
}

}  // namespace trainyard::data
