// Which checkpoint a path means, and how runs and readers get past damaged ones.
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_damage.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_listing.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::train {
namespace {

bool has_checkpoint_file(const std::string& path, core::FileSystem& files) {
  return files.exists(core::join_path(path, kManifestFile)) || files.exists(core::join_path(path, kTensorFile));
}

// The checkpoint that was about to be replaced when a crash took its name from it; else an empty path.
std::string find_replaced(const std::string& path, core::FileSystem& files) {
  const std::string parent = core::parent_path(path), name = core::base_name(path);
  const std::optional<CheckpointName> wanted = parse_checkpoint_name(name);
  if (!wanted || wanted->purpose != CheckpointPurpose::kNone || !files.exists(parent)) return {};
  for (const std::string& sibling : files.list(parent)) {
    const std::optional<CheckpointName> parsed = parse_checkpoint_name(sibling);
    if (!parsed || parsed->plain != name || parsed->purpose != CheckpointPurpose::kReplaced) continue;
    std::string found = core::join_path(parent, sibling);
    if (!find_damage(found, files)) return found;
  }
  return {};
}

// The directory of the checkpoint that `path` names; empty when it names none: a train directory, or nothing.
std::string checkpoint_at(const std::string& path, core::FileSystem& files) {
  if (has_checkpoint_file(path, files)) return path;
  if (!files.exists(path)) return find_replaced(path, files);
  const std::string name = core::base_name(path);
  const std::optional<CheckpointName> parsed = parse_checkpoint_name(name);
  // By its name a checkpoint that no longer exists, unless a train directory has such a name.
  if (!parsed || !parsed->step) return {};
  const CheckpointListing inside = files.info(path).is_directory ? list_checkpoints(path, files) : CheckpointListing();
  return inside.intact.empty() && inside.damaged.empty() ? path : std::string();
}

// What a folder without checkpoints of a run holds instead.
struct FolderContent {
  std::string text;                 // for people
  std::string checkpoint, weights;  // paths of what may have been meant; empty: there is none
};

FolderContent describe_folder(const std::string& path, core::FileSystem& files) {
  FolderContent content;
  if (!files.exists(path)) {
    content.text = "no such directory";
    return content;
  }
  if (!files.info(path).is_directory) {
    content.text = "a file";
    return content;
  }
  constexpr size_t kShown = 8;
  std::vector<std::string> shown;
  const std::vector<std::string> names = files.list(path);
  for (const std::string& name : names) {
    const std::string inside = core::join_path(path, name);
    const bool is_folder = files.exists(inside) && files.info(inside).is_directory;
    if (shown.size() < kShown) shown.push_back(is_folder ? name + "/" : name);
    const bool is_checkpoint =
        is_folder && (name == kBestCheckpoint || !list_checkpoints(inside, files).intact.empty());
    if (is_checkpoint && content.checkpoint.empty()) content.checkpoint = inside;
    const bool is_weights = name.ends_with(".safetensors") || name.ends_with(".pth") || name.ends_with(".pt");
    if (is_weights && !is_folder && content.weights.empty()) content.weights = inside;
  }
  content.text = names.empty()                 ? "an empty folder"
                 : names.size() > shown.size() ? fmt::format("{}, ... ({} names)", fmt::join(shown, ", "), names.size())
                                               : fmt::format("{}", fmt::join(shown, ", "));
  return content;
}

core::Error no_checkpoint(const std::string& path, core::FileSystem& files) {
  const FolderContent content = describe_folder(core::without_slashes(path), files);
  return {core::ErrorCode::kNotFound,
          {.problem = "No checkpoint file found in dir:" + path,
           .expected = fmt::format("directories {} with {} and {}", "model.ckpt-<step>", kManifestFile, kTensorFile),
           .actual = content.text,
           .remedy = !content.checkpoint.empty() ? fmt::format("pass --train_dir={}", content.checkpoint)
                     : !content.weights.empty()
                         ? fmt::format("pass --weights={} in the place of --train_dir", content.weights)
                         : "check --train_dir, or train first"}};
}

// A file that is no manifest has no checkpoints to list.
void refuse_file(const std::string& path, core::FileSystem& files) {
  const std::string plain = core::without_slashes(path);
  if (files.exists(plain) && !files.info(plain).is_directory) throw no_checkpoint(path, files);
}

// Damage that was passed over, for the log.
void warn_of(const DamagedCheckpoint& damaged) {
  core::log::warning("--ignore_damaged_checkpoints passes over {}: {}", damaged.info.path,
                     damaged.error.detail().problem);
}

// Damage that is older than the newest checkpoint, which is intact.
void warn_of_older(const std::string& directory, core::FileSystem& files) {
  for (const DamagedCheckpoint& older : list_checkpoints(directory, files).damaged) {
    core::log::warning("passing over an older checkpoint, {}: {}", older.error.detail().where,
                       older.error.detail().problem);
  }
}

// Splits the checkpoints of a directory by whether all of their bytes are sound, from the newest intact one on: those
// before it are not read.
CheckpointListing sound_checkpoints(const std::string& directory, core::FileSystem& files) {
  formats::refuse_tensorflow_checkpoint(directory, files);
  CheckpointListing listing = list_checkpoints(directory, files);
  while (!listing.intact.empty()) {
    const CheckpointInfo newest = listing.intact.back();
    const std::optional<core::Error> error =
        reading_error(newest.path, files, [&] { CheckpointReader(newest.path, files); });
    if (!error) break;
    listing.intact.pop_back();
    if (error->code() == core::ErrorCode::kCorruptData) listing.damaged.push_back({newest, *error});
  }
  return listing;
}

// Returns what open_newest_checkpoint() is to read; warns of each damaged one that is passed over.
CheckpointInfo choose(const std::string& path, DamagedCheckpoints damaged, core::FileSystem& files) {
  const std::string plain = core::without_slashes(path);
  if (damaged == DamagedCheckpoints::kStop || !checkpoint_at(plain, files).empty()) return find_checkpoint(path, files);
  refuse_file(path, files);
  CheckpointListing listing = sound_checkpoints(plain, files);
  for (const DamagedCheckpoint& each : listing.damaged) warn_of(each);
  if (!listing.intact.empty()) return std::move(listing.intact.back());
  throw no_checkpoint(path, files);
}

}  // namespace

CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files) {
  const std::string plain = core::without_slashes(path);
  if (std::string found = checkpoint_at(plain, files); !found.empty()) {
    const int64_t step = read_manifest(found, files).global_step;
    return {.path = std::move(found), .global_step = step};
  }
  refuse_file(path, files);
  if (auto latest = CheckpointStore(plain, 0, files).latest()) return *std::move(latest);
  throw no_checkpoint(path, files);
}

OpenedCheckpoint open_newest_checkpoint(const std::string& path, const CheckpointIdentity* expected,
                                        DamagedCheckpoints damaged, core::FileSystem& files) {
  for (int look = 1;; ++look) {
    OpenedCheckpoint opened;
    opened.info = choose(path, damaged, files);
    const std::optional<core::Error> error = reading_error(opened.info.path, files, [&] {
      opened.identity = read_checkpoint_identity(opened.info, files);
      opened.reader = open_checkpoint(opened.info, expected, files);
    });
    if (!error) {
      if (damaged == DamagedCheckpoints::kStop) warn_of_older(core::without_slashes(path), files);
      return opened;
    }
    if (error->code() != core::ErrorCode::kNotFound || look == kMostLooks) throw *error;
  }
}

std::optional<CheckpointInfo> resume_newest_checkpoint(CheckpointStore& store, const CheckpointIdentity* expected,
                                                       core::Stateful& state, DamagedCheckpoints damaged,
                                                       const CheckpointLook& look) {
  std::optional<CheckpointInfo> newest;
  if (damaged == DamagedCheckpoints::kStop) {
    newest = store.latest();
    warn_of_older(store.directory(), store.files());
  } else {
    CheckpointListing listing = sound_checkpoints(store.directory(), store.files());
    if (!listing.intact.empty()) newest = listing.intact.back();
    for (const DamagedCheckpoint& each : listing.damaged) {
      warn_of(each);
      if (damaged == DamagedCheckpoints::kSetAside) {
        core::log::warning("the damaged checkpoint is kept as {}", store.set_aside(each.info.path));
      }
    }
    if (!newest && !listing.damaged.empty()) {
      core::log::warning("no intact checkpoint is left in {}: starting from the beginning", store.directory());
    }
  }
  if (!newest) return newest;
  Manifest manifest = read_manifest(newest->path, store.files());
  if (look) look(*newest, read_checkpoint_facts(manifest, newest->path));
  load_checkpoint(*newest, std::move(manifest), expected, state, store.files());
  return newest;
}

}  // namespace trainyard::train
