#include "trainyard/formats/tensors/tensorflow_checkpoint.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"

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

[[noreturn]] void throw_unreadable(const std::string& where, const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  throw core::Error(
      core::ErrorCode::kUnsupported,
      {.problem = "this is a checkpoint of TensorFlow, which is not read, and to whose folder nothing is written",
       .where = where,
       .actual = fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                             shown < names.size() ? fmt::format(", ... ({} files)", names.size()) : ""),
       .remedy = "name another folder; weights come from safetensors files, PyTorch's state dicts and checkpoints of "
                 "Trainyard"});
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
  if (path.empty()) return;
  if (!files.exists(path)) {
    if (is_file(path + std::string(kIndex), files))
      throw_unreadable(path, {core::base_name(path) + std::string(kIndex)});
    return;
  }
  if (files.info(path).is_directory) {
    if (const std::vector<std::string> names = tensorflow_checkpoint_files(path, files); !names.empty()) {
      throw_unreadable(path, names);
    }
    return;
  }
  const std::string name = core::base_name(path);
  if (name == kState ? lists_checkpoints(path, files) : is_of_tensorflow(name, {})) throw_unreadable(path, {name});
}

}  // namespace trainyard::formats
