#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "trainyard/core/error.h"
#include "trainyard/core/log.h"
#include "trainyard/train/checkpoint.h"
#include "trainyard/train/checkpoint_manifest.h"
#include "trainyard/train/checkpoint_writer.h"

namespace trainyard::train {
namespace {

constexpr std::string_view kPrefix = "model.ckpt-";
// Behind the name of a directory that is being written, or removed.
constexpr std::string_view kTemporary = "tmp";
// Behind the name of a complete checkpoint that makes way for another one of the same step.
constexpr std::string_view kReplaced = "replaced";

// "model.ckpt-<step>" or "model.ckpt-<step>.<purpose>-<process>-<number>", and nothing else: only what bears such a
// name is ever removed or renamed.
struct Name {
  int64_t step = 0;
  std::string_view purpose;  // empty for a checkpoint
};

bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<Name> parse_name(std::string_view text) {
  Name name;
  int64_t number = 0;
  if (!take(text, kPrefix) || !take_number(text, name.step)) return std::nullopt;
  if (text.empty()) return name;
  for (const std::string_view purpose : {kTemporary, kReplaced}) {
    std::string_view rest = text;
    if (take(rest, ".") && take(rest, purpose) && take(rest, "-") && take_number(rest, number) && take(rest, "-") &&
        take_number(rest, number) && rest.empty()) {
      name.purpose = purpose;
      return name;
    }
  }
  return std::nullopt;
}

std::string unique_path(const std::string& path, std::string_view purpose) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}-{}-{}", path, purpose, ::getpid(), counter.fetch_add(1));
}

// For clean-up, where a failure loses nothing but space.
template <typename Work>
void or_warn(std::string_view what, Work work) {
  try {
    work();
  } catch (const core::Error& error) {
    core::log::warning("{}: {}", what, error.what());
  }
}

// Whether there is an undamaged manifest. A failing disk is an error, not a missing checkpoint.
bool is_complete(const std::string& path, core::FileSystem& files) {
  try {
    const std::string manifest = core::join_path(path, kManifestFile);
    if (manifest_is_intact(files.read_file(manifest, kMaxManifestBytes))) return true;
    core::log::warning("passing over a damaged checkpoint: {}", manifest);
    return false;
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kNotFound) return false;
    if (error.code() != core::ErrorCode::kCorruptData) throw;
    core::log::warning("passing over a damaged checkpoint: {}", error.what());
    return false;
  }
}

std::string without_trailing_slashes(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path : path.substr(0, last + 1);
}

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, int64_t max_to_keep, core::FileSystem& files)
    : directory_(std::move(directory)), max_to_keep_(max_to_keep), files_(&files) {}

CheckpointInfo CheckpointStore::save(int64_t global_step, const CheckpointIdentity& identity,
                                     const core::Stateful& state) {
  if (global_step < 0) throw core::Error(core::ErrorCode::kInvalidArgument, "negative step of a checkpoint");
  const bool new_directory = !files_->exists(directory_);
  files_->make_directories(directory_);
  if (new_directory) files_->sync_directory(core::parent_path(without_trailing_slashes(directory_)));
  clean_up();

  const std::string path = core::join_path(directory_, fmt::format("{}{}", kPrefix, global_step));
  const std::string temporary = unique_path(path, kTemporary);
  try {
    files_->make_directories(temporary);
    CheckpointWriter writer(temporary, *files_);
    state.save(writer);
    writer.finish(global_step, identity);
    commit(temporary, path);
  } catch (...) {
    or_warn("an incomplete checkpoint stays behind", [&] { files_->remove_tree(temporary); });
    throw;
  }
  or_warn("old checkpoints stay behind", [&] { prune(global_step); });
  return {.path = path, .global_step = global_step};
}

void CheckpointStore::commit(const std::string& temporary, const std::string& path) {
  std::string replaced;
  if (files_->exists(path)) {
    replaced = unique_path(path, kReplaced);
    files_->rename(path, replaced);
  }
  try {
    files_->rename(temporary, path);
  } catch (...) {
    if (!replaced.empty()) or_warn("a checkpoint lost its name", [&] { files_->rename(replaced, path); });
    throw;
  }
  files_->sync_directory(directory_);
  if (!replaced.empty()) or_warn("a replaced checkpoint stays behind", [&] { files_->remove_tree(replaced); });
}

void CheckpointStore::clean_up() {
  for (const std::string& name : files_->list(directory_)) {
    const std::optional<Name> parsed = parse_name(name);
    if (!parsed || parsed->purpose.empty()) continue;
    const std::string path = core::join_path(directory_, name);
    const std::string final_path = core::join_path(directory_, fmt::format("{}{}", kPrefix, parsed->step));
    // A crash between the two renames of commit(): the old checkpoint of this step is the one there is.
    if (parsed->purpose == kReplaced && !files_->exists(final_path) && is_complete(path, *files_)) {
      files_->rename(path, final_path);
      continue;
    }
    or_warn("a leftover of an earlier run stays behind", [&] { files_->remove_tree(path); });
  }
}

void CheckpointStore::prune(int64_t saved_step) {
  if (max_to_keep_ <= 0) return;
  std::vector<CheckpointInfo> checkpoints = list();
  auto excess = static_cast<int64_t>(checkpoints.size()) - max_to_keep_;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (excess <= 0) break;
    // A run that starts over in a directory of later checkpoints keeps its own.
    if (checkpoint.global_step == saved_step) continue;
    // Renamed first: a checkpoint that is half removed must not look like one.
    const std::string temporary = unique_path(checkpoint.path, kTemporary);
    files_->rename(checkpoint.path, temporary);
    files_->remove_tree(temporary);
    --excess;
  }
}

std::vector<CheckpointInfo> CheckpointStore::list() const {
  std::vector<CheckpointInfo> found;
  if (!files_->exists(directory_)) return found;
  const std::vector<std::string> names = files_->list(directory_);
  for (const std::string& name : names) {
    const std::optional<Name> parsed = parse_name(name);
    if (!parsed || parsed->purpose == kTemporary) continue;
    const std::string final_name = fmt::format("{}{}", kPrefix, parsed->step);
    if (parsed->purpose == kReplaced && std::binary_search(names.begin(), names.end(), final_name)) continue;
    const std::string path = core::join_path(directory_, name);
    if (is_complete(path, *files_)) found.push_back({.path = path, .global_step = parsed->step});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.global_step < b.global_step; });
  return found;
}

std::optional<CheckpointInfo> CheckpointStore::latest() const {
  std::vector<CheckpointInfo> found = list();
  if (found.empty()) return std::nullopt;
  return std::move(found.back());
}

int64_t checkpoint_step(std::string_view path) {
  const size_t last_other = path.find_last_not_of("0123456789");
  std::string_view digits = last_other == std::string_view::npos ? path : path.substr(last_other + 1);
  int64_t step = 0;
  return take_number(digits, step) ? step : 0;
}

CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files) {
  const std::string plain = without_trailing_slashes(path);
  if (files.exists(core::join_path(plain, kManifestFile))) {
    return {.path = plain, .global_step = checkpoint_step(plain)};
  }
  if (auto latest = CheckpointStore(plain, 0, files).latest()) return *std::move(latest);
  throw core::Error(core::ErrorCode::kNotFound, {.problem = "No checkpoint file found in dir:" + path,
                                                 .expected = fmt::format("directories {}<step> with {} and {}", kPrefix,
                                                                         kManifestFile, kTensorFile),
                                                 .actual = files.exists(plain) ? "none" : "no such directory",
                                                 .remedy = "check --train_dir, or train first"});
}

}  // namespace trainyard::train
