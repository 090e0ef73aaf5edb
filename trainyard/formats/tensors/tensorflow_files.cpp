// Which files belong to checkpoints of TensorFlow, and which checkpoint a path means.

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"

namespace trainyard::formats {
namespace {

constexpr std::string_view kState = "checkpoint", kSavedModel = "saved_model.pb", kIndex = ".index", kMeta = ".meta";

// Returns the part in front of ".data-00000-of-00001", and nothing where the name does not end so.
std::optional<std::string_view> prefix_of_shard(std::string_view name) {
  constexpr std::string_view kForm = ".data-00000-of-00001";
  if (name.size() <= kForm.size()) return std::nullopt;
  const std::string_view end = name.substr(name.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = kForm[i] == '0' || kForm[i] == '1';
    if (digit ? end[i] < '0' || end[i] > '9' : end[i] != kForm[i]) return std::nullopt;
  }
  return name.substr(0, name.size() - kForm.size());
}

// Returns whether a name that ends with ".index" or ".meta" is of a checkpoint: other programs have such files, too.
bool belongs_to_checkpoint(std::string_view prefix, const std::vector<std::string>& names) {
  if (prefix.find("ckpt") != std::string_view::npos) return true;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return prefix_of_shard(name) == prefix; });
}

bool is_of_tensorflow(std::string_view name, const std::vector<std::string>& names) {
  if (name == kState || name == kSavedModel || prefix_of_shard(name)) return true;
  for (const std::string_view end : {kIndex, kMeta}) {
    if (name.size() > end.size() && name.ends_with(end)) {
      return belongs_to_checkpoint(name.substr(0, name.size() - end.size()), names);
    }
  }
  return false;
}

bool is_file(const std::string& path, core::FileSystem& files) {
  return files.exists(path) && !files.info(path).is_directory;
}

// Returns whether a file called "checkpoint" is TensorFlow's, a short text that lists checkpoints.
bool lists_checkpoints(const std::string& path, core::FileSystem& files) {
  constexpr std::string_view kBegin = "model_checkpoint_path";
  const auto file = files.open_read(path);
  if (file->size() < kBegin.size()) return false;
  std::array<char, kBegin.size()> begin{};
  file->read_at(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), begin.size()) == kBegin;
}

// Returns the names of the files for which `path` is a checkpoint of TensorFlow; none: it is not.
std::vector<std::string> files_of(const std::string& path, core::FileSystem& files) {
  if (path.empty()) return {};
  const std::string name = core::base_name(path);
  if (!files.exists(path)) {
    const std::string index = path + std::string(kIndex);
    return is_file(index, files) ? std::vector{core::base_name(index)} : std::vector<std::string>();
  }
  if (files.info(path).is_directory) return tensorflow_checkpoint_files(path, files);
  const bool is_one = name == kState ? lists_checkpoints(path, files) : is_of_tensorflow(name, {});
  return is_one ? std::vector{name} : std::vector<std::string>();
}

core::Error malformed_state(const std::string& path, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "the list of checkpoints is malformed",
           .where = path,
           .expected = "model_checkpoint_path: \"model.ckpt-110\"",
           .actual = std::move(actual),
           .remedy = "name a checkpoint by its prefix, as in train_dir/model.ckpt-110"}};
}

// Removes a quoted text, with the escapes of protocol buffers' text format, from the front of `text`.
std::optional<std::string> take_quoted(std::string_view& text) {
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) return std::nullopt;
  const char quote = text.front();
  text.remove_prefix(1);
  std::string value;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c == quote) return value;
    if (c == '\n') return std::nullopt;
    if (c != '\\') {
      value.push_back(c);
      continue;
    }
    if (text.empty()) return std::nullopt;
    int code = 0, digits = 0;
    for (; digits < 3 && !text.empty() && text.front() >= '0' && text.front() <= '7'; ++digits) {
      code = code * 8 + (text.front() - '0');
      text.remove_prefix(1);
    }
    if (digits > 0) {
      value.push_back(static_cast<char>(code));
      continue;
    }
    constexpr std::string_view kEscaped = "\\\"'?";
    if (kEscaped.find(text.front()) == std::string_view::npos) return std::nullopt;
    value.push_back(text.front());
    text.remove_prefix(1);
  }
  return std::nullopt;
}

// Returns the model_checkpoint_path of a file "checkpoint".
std::string newest_in(const std::string& state, core::FileSystem& files) {
  constexpr uint64_t kMaxStateBytes = uint64_t{16} << 20;
  const std::string text = files.read_file(state, kMaxStateBytes);
  std::string_view left = text;
  constexpr std::string_view kKey = "model_checkpoint_path", kBlanks = " \t\r";
  while (!left.empty()) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const auto skip_blanks = [&] { line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks))); };
    skip_blanks();
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    skip_blanks();
    if (!line.starts_with(':')) continue;
    line.remove_prefix(1);
    skip_blanks();
    std::optional<std::string> path = take_quoted(line);
    if (!path || path->empty()) throw malformed_state(state, "a path that is not a quoted text");
    return *std::move(path);
  }
  throw malformed_state(state, "no model_checkpoint_path");
}

std::string newest_of(const std::string& directory, core::FileSystem& files) {
  const std::string state = core::join_path(directory, kState);
  if (is_file(state, files)) {
    const std::string named = newest_in(state, files), path = core::join_path(directory, named);
    if (is_file(path + std::string(kIndex), files)) return path;
    // The folder was moved after TensorFlow had written an absolute path.
    const std::string moved = core::join_path(directory, core::base_name(named));
    if (is_file(moved + std::string(kIndex), files)) return moved;
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "the newest checkpoint does not exist",
                                                   .where = state,
                                                   .expected = path + std::string(kIndex),
                                                   .actual = "no such file",
                                                   .remedy = "name another one by its prefix, as in --weights=" +
                                                             core::join_path(directory, "model.ckpt-110")});
  }
  std::vector<std::string> prefixes;
  const std::vector<std::string> names = tensorflow_checkpoint_files(directory, files);
  for (const std::string& name : names) {
    if (name.ends_with(kIndex)) prefixes.push_back(name.substr(0, name.size() - kIndex.size()));
  }
  if (prefixes.size() == 1) return core::join_path(directory, prefixes.front());
  const bool saved_model = std::find(names.begin(), names.end(), kSavedModel) != names.end();
  if (prefixes.empty() && saved_model) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "a SavedModel of TensorFlow is not read",
                       .where = directory,
                       .remedy = fmt::format("name the checkpoint in it: {}/variables/variables", directory)});
  }
  throw core::Error(core::ErrorCode::kNotFound,
                    {.problem = "no text says which of TensorFlow's checkpoints is the newest",
                     .where = directory,
                     .expected = "a file \"checkpoint\", or a single .index",
                     .actual = prefixes.empty() ? "no .index" : fmt::format("{}", fmt::join(prefixes, ", ")),
                     .remedy = "name one by its prefix, as in --weights=" +
                               core::join_path(directory, prefixes.empty() ? "model.ckpt-110" : prefixes.back())});
}

}  // namespace

std::vector<std::string> tensorflow_checkpoint_files(const std::string& directory, core::FileSystem& files) {
  std::vector<std::string> found;
  if (!files.exists(directory) || !files.info(directory).is_directory) return found;
  const std::vector<std::string> names = files.list(directory);
  for (const std::string& name : names) {
    if (is_of_tensorflow(name, names) && is_file(core::join_path(directory, name), files)) found.push_back(name);
  }
  return found;
}

void refuse_tensorflow_checkpoint(const std::string& path, core::FileSystem& files) {
  const std::vector<std::string> names = files_of(path, files);
  if (names.empty()) return;
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  throw core::Error(
      core::ErrorCode::kUnsupported,
      {.problem = "this is a checkpoint of TensorFlow, to whose folder nothing is written",
       .where = path,
       .actual = fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                             shown < names.size() ? fmt::format(", ... ({} files)", names.size()) : ""),
       .remedy = "name another folder for what is written, and this one as --weights to begin with its weights"});
}

bool is_tensorflow_checkpoint(const std::string& path, core::FileSystem& files) {
  return !files_of(path, files).empty();
}

std::string find_tensorflow_checkpoint(const std::string& path, core::FileSystem& files) {
  if (files.exists(path) && files.info(path).is_directory) return newest_of(path, files);
  const std::string name = core::base_name(path);
  if (is_file(path, files) && name == kState) return newest_of(core::parent_path(path), files);
  std::string prefix = path;
  for (const std::string_view end : {kIndex, kMeta}) {
    if (name.size() > end.size() && name.ends_with(end)) prefix.resize(path.size() - end.size());
  }
  if (const auto shard = prefix_of_shard(name)) prefix.resize(path.size() - (name.size() - shard->size()));
  if (is_file(prefix + std::string(kIndex), files)) return prefix;
  throw core::Error(core::ErrorCode::kNotFound, {.problem = "there is no such checkpoint of TensorFlow",
                                                 .where = path,
                                                 .expected = prefix + std::string(kIndex),
                                                 .actual = "no such file"});
}

}  // namespace trainyard::formats
