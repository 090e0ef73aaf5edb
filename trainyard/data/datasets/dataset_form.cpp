#include "trainyard/data/datasets/dataset_form.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/data/datasets/labelled_files.h"
#include "trainyard/data/datasets/left_out_files.h"
#include "trainyard/data/datasets/tfrecord_dataset.h"
#include "trainyard/data/datasets/webdataset.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr size_t kMaxPaths = 1'000'000;

const std::vector<std::string>& words_of(Subset subset) {
  static const std::vector<std::string> train = {"train"}, validation = {"validation", "val", "valid", "test"};
  return subset == Subset::kTrain ? train : validation;
}

Subset other(Subset subset) {
  return subset == Subset::kTrain ? Subset::kValidation : Subset::kTrain;
}

// Whether one of the name's words, between what are no letters, is `wanted`: "imagenet-train-000.tar" and "train".
bool has_word(std::string_view name, std::string_view wanted) {
  std::string word;
  for (size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && std::isalpha(static_cast<unsigned char>(name[i])) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
      continue;
    }
    if (word == wanted) return true;
    word.clear();
  }
  return false;
}

bool names_subset(std::string_view name, Subset subset) {
  const std::vector<std::string>& words = words_of(subset);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return has_word(name, word); });
}

// Leaves those of `paths` that are of the first of the subset's words which any of them has: validation images, or
// where there are none test images, but not both. Paths without such a word stay.
void keep_first_word(std::vector<std::string>& paths, Subset subset) {
  const auto of_word = [](const std::string& path, const std::string& word) {
    return has_word(core::base_name(path), word);
  };
  for (const std::string& first : words_of(subset)) {
    if (std::none_of(paths.begin(), paths.end(), [&](const auto& path) { return of_word(path, first); })) continue;
    std::erase_if(paths, [&](const std::string& path) {
      return !of_word(path, first) && names_subset(core::base_name(path), subset);
    });
    return;
  }
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

// The words of TFRecords' names in front of -*-of-*, the usual one of the data set first.
std::vector<std::string> prefixes_of(std::string_view usual, Subset subset) {
  std::vector<std::string> prefixes = {std::string(usual)};
  for (const std::string& word : words_of(subset)) {
    if (word != usual) prefixes.push_back(word);
  }
  return prefixes;
}

std::optional<StoredImages> shards_in(core::FileSystem& files, const std::string& directory,
                                      const std::vector<std::string>& prefixes, Subset subset,
                                      const std::function<bool(std::string_view)>& tar_belongs) {
  const std::vector<std::string> names = files.list(directory);
  std::vector<std::string> found;
  for (const std::string& prefix : prefixes) {
    for (const std::string& name : names) {
      if (is_tfrecord_shard(name, prefix)) found.push_back(core::join_path(directory, name));
    }
    if (!found.empty()) return shards_of(std::move(found));
  }
  for (const std::string& name : names) {
    if (is_tar(name) && tar_belongs(name)) found.push_back(core::join_path(directory, name));
  }
  keep_first_word(found, subset);
  return shards_of(std::move(found));
}

// The subset of which `directory` holds all images, because it is called DIR/val and DIR/train is there, too; or the
// other way round. Nothing: its name says nothing.
std::optional<Subset> subset_of_name(core::FileSystem& files, const std::string& directory) {
  const std::string full = full_path(directory), name = core::lower_case(core::base_name(full));
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const std::vector<std::string>& words = words_of(subset);
    if (std::find(words.begin(), words.end(), name) == words.end()) continue;
    try {
      if (!subset_folders(files, core::parent_path(full), other(subset)).empty()) return subset;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kIo) throw;  // a parent that may not be listed says nothing
    }
  }
  return std::nullopt;
}

// Says whether `folder` is one for the training images, and no class of that name.
bool divides(core::FileSystem& files, const std::string& folder) {
  const std::vector<std::string> names = files.list(folder);
  return std::none_of(names.begin(), names.end(), is_image_name) || !folders_in(files, folder).empty();
}

std::optional<StoredImages> look_into(const DatasetOptions& options, std::string_view prefix) {
  core::FileSystem& files = *options.files;
  const std::optional<Subset> named = subset_of_name(files, options.directory);
  // A tar without a word for a subset belongs to the folder's subset, else to the training images.
  const auto belongs = [&](std::string_view name) {
    if (names_subset(name, options.subset)) return true;
    return !names_subset(name, other(options.subset)) && named.value_or(Subset::kTrain) == options.subset;
  };
  const std::vector<std::string> prefixes = prefixes_of(prefix, options.subset);
  if (auto shards = shards_in(files, options.directory, prefixes, options.subset, belongs)) return shards;
  const auto all = [](std::string_view) { return true; };
  for (const std::string& own : subset_folders(files, options.directory, options.subset)) {
    if (auto shards = shards_in(files, own, prefixes, options.subset, all)) return shards;
    if (!folders_in(files, own).empty()) return StoredImages{Form::kClassFolders, {own}};
  }
  const std::vector<std::string> training = subset_folders(files, options.directory, Subset::kTrain);
  const bool divided = std::any_of(training.begin(), training.end(),
                                   [&](const std::string& folder) { return divides(files, folder); }) ||
                       !subset_folders(files, options.directory, Subset::kValidation).empty();
  if (divided || !holds_class_folders(files, options.directory)) return std::nullopt;
  if (named && *named != options.subset) return std::nullopt;
  return StoredImages{.form = Form::kClassFolders, .paths = {options.directory}, .undivided = !named};
}

std::optional<StoredImages> named_shards(const DatasetOptions& options) {
  std::vector<std::string> paths = paths_named(*options.files, options.directory);
  std::erase_if(paths, [&](const std::string& path) {
    const std::string name = core::base_name(path);
    return names_subset(name, other(options.subset)) && !names_subset(name, options.subset);
  });
  if (paths.size() > 1) keep_first_word(paths, options.subset);
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
  std::string found = fmt::format("{} and {}", listed("file", others), listed("folder", folders));
  LeftOutFiles left_out;
  for (const std::string& folder : folders) {
    const std::string path = core::join_path(directory, folder);
    for (const std::string& name : files.list(path)) {
      if (!is_image_name(name) && !is_directory(files, core::join_path(path, name))) left_out.add(name);
    }
  }
  if (left_out.empty()) return found;
  const std::string remedy = left_out.remedy();
  return fmt::format("{}; no images are what the folders hold: {}{}", found, left_out.text(),
                     remedy.empty() ? "" : " (" + remedy + ")");
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
    for (uint64_t i = 0; i <= to - from; ++i) choices.push_back(fmt::format("{:0{}}", from + i, first.size()));
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
  if (!is_directory(files, directory)) return folders;
  const std::vector<std::string> names = files.list(directory);
  for (const std::string& word : words_of(subset)) {
    for (const std::string& name : names) {
      std::string path = core::join_path(directory, name);
      if (core::lower_case(name) == word && is_directory(files, path)) folders.push_back(std::move(path));
    }
  }
  return folders;
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
  if (directory) {
    require_finished(files, options.directory);
  } else {
    require_data(files, options.directory);
  }
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

void refuse_division(const DatasetOptions& options, const char* problem, const char* actual) {
  if (!options.requires_division) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = problem,
                                            .where = options.directory,
                                            .expected = "class folders or --labels_csv, and no validation images",
                                            .actual = actual,
                                            .remedy = "leave --validation_split and --folds out"});
}

namespace {

// Returns the images that options.division divides; nothing where there are none.
std::optional<StoredImages> images_to_divide(const DatasetOptions& options, std::string_view other_forms) {
  DatasetOptions of = options;
  of.subset = Subset::kTrain;
  StoredImages training;
  try {
    training = find_stored_images(of, subset_name(of.subset), other_forms);
  } catch (const NoSuchSubset&) {
    if (options.requires_division) throw;
    return std::nullopt;
  }
  if (training.form != Form::kClassFolders) {
    refuse_division(options, "the images cannot be divided by their names", "records in TFRecords or WebDataset");
    return std::nullopt;
  }
  if (training.undivided) return training;
  of.subset = Subset::kValidation;
  try {
    static_cast<void>(find_stored_images(of, subset_name(of.subset), other_forms));
  } catch (const NoSuchSubset&) {
    training.undivided = true;
    return training;
  }
  refuse_division(options, "the data have validation images of their own", "a folder of them");
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Dataset> open_stored_images(const DatasetOptions& options, std::string_view prefix,
                                            const Labels& labels, std::string_view other_forms) {
  if (!options.labels_csv.empty()) {
    refuse_index_files(options);
    return open_labelled_files(options);
  }
  std::optional<StoredImages> to_divide;
  if (options.division && options.divide) to_divide = images_to_divide(options, other_forms);
  StoredImages stored = to_divide ? *std::move(to_divide) : find_stored_images(options, prefix, other_forms);
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
    case Form::kClassFolders: {
      const std::string& root = stored.paths.front();
      auto whole = std::make_unique<FolderDataset>(options, root);
      if (!stored.undivided) return whole;
      if (!options.divide) {
        core::log::info("{}: all {} images are {} images, as asked", root, whole->size(), subset_name(options.subset));
        return whole;
      }
      const std::shared_ptr<const FolderDataset> shared = std::move(whole);
      return part_of_samples(shared, named_samples(shared), options.subset, options.division.value_or(Division{}),
                             options.division ? "" : " has no folder val", root);
    }
  }
  throw Error(ErrorCode::kInternal, "form of a data set without a reader");
}

std::vector<std::string> training_class_names(const std::string& name, DatasetOptions options) {
  if (!options.labels_csv.empty()) return {};  // each subset has the names of the whole table
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
