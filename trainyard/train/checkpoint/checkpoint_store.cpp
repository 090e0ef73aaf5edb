#include <algorithm>
#include <mutex>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_copy.h"
#include "trainyard/train/checkpoint/checkpoint_damage.h"
#include "trainyard/train/checkpoint/checkpoint_listing.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/checkpoint_writer.h"

namespace trainyard::train {
namespace {

// Locked while a store writes. What is being written has a temporary name, which another store of the same directory
// would take for a leftover and remove.
std::mutex& write_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Two states that are saved one behind the other.
class BothStates : public core::Stateful {
 public:
  BothStates(const core::Stateful& first, const core::Stateful& second) : first_(first), second_(second) {}
  void save(core::StateWriter& writer) const override {
    first_.save(writer);
    second_.save(writer);
  }
  void load(const core::StateReader&) override {}  // never: it is made to be saved once

 private:
  const core::Stateful &first_, &second_;
};

// Makes the names of a folder and of those around it durable. This process may have made several of them, or an earlier
// one, which died before it came to this. A folder that cannot be read is another user's, who has made it durable.
void sync_folders_around(std::string path, core::FileSystem& files) {
  for (std::string around = core::parent_path(path); around != path;
       path = std::exchange(around, core::parent_path(around))) {
    try {
      static_cast<void>(files.list(around));
    } catch (const core::Error&) {
      continue;
    }
    files.sync_directory(around);
  }
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

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, int64_t max_to_keep, core::FileSystem& files)
    : directory_(std::move(directory)), max_to_keep_(max_to_keep), files_(&files) {}

CheckpointInfo CheckpointStore::save(int64_t global_step, const CheckpointIdentity& identity,
                                     const core::Stateful& state) {
  return write_and_prune(global_step, identity, state, nullptr);
}

CheckpointInfo CheckpointStore::save_copy(int64_t global_step, const CheckpointIdentity& identity,
                                          const CheckpointCopy& copy) {
  return write_and_prune(global_step, identity, copy, &copy.written());
}

CheckpointInfo CheckpointStore::write_and_prune(int64_t global_step, const CheckpointIdentity& identity,
                                                const core::Stateful& state, WrittenTensors* tensors) {
  if (global_step < 0) throw core::Error(core::ErrorCode::kInvalidArgument, "negative step of a checkpoint");
  const std::lock_guard lock(write_mutex());
  CheckpointInfo saved = write(checkpoint_name(global_step), global_step, identity, state, tensors);
  or_warn("old checkpoints stay behind", [&] { prune(global_step); });
  return saved;
}

CheckpointInfo CheckpointStore::save_best(int64_t global_step, const CheckpointIdentity& identity,
                                          const core::Stateful& state) {
  const std::lock_guard lock(write_mutex());
  return write(std::string(kBestCheckpoint), global_step, identity, state);
}

CheckpointInfo CheckpointStore::save_best_copy(int64_t global_step, const CheckpointIdentity& identity,
                                               const CheckpointCopy& copy, const core::Stateful& values) {
  const std::lock_guard lock(write_mutex());
  return write(std::string(kBestCheckpoint), global_step, identity, BothStates(copy, values), &copy.written());
}

CheckpointInfo CheckpointStore::write(const std::string& name, int64_t global_step, const CheckpointIdentity& identity,
                                      const core::Stateful& state, WrittenTensors* tensors) {
  // A run that has saved here continues, whatever other files are in its directory.
  if (!formats::tensorflow_checkpoint_files(directory_, *files_).empty() && list().empty()) {
    formats::refuse_tensorflow_checkpoint(core::without_slashes(directory_), *files_);
  }
  files_->make_directories(directory_);
  const std::vector<std::string> names = files_->list(directory_);
  const bool is_first = std::none_of(names.begin(), names.end(),
                                     [](const std::string& each) { return parse_checkpoint_name(each).has_value(); });
  if (is_first) sync_folders_around(core::without_slashes(directory_), *files_);
  clean_up();

  const std::string path = core::join_path(directory_, name);
  const std::string temporary = unused_path(path, CheckpointPurpose::kTemporary);
  try {
    files_->make_directories(temporary);
    CheckpointWriter writer(temporary, global_step, *files_, tensors);
    state.save(writer);
    writer.finish(identity);
    std::optional<WrittenTensors> written;
    if (tensors != nullptr) written = writer.written();
    commit(temporary, path);
    if (written) {
      written->path = core::join_path(path, core::base_name(written->path));
      *tensors = *std::move(written);
    }
  } catch (...) {
    or_warn("an incomplete checkpoint stays behind", [&] { files_->remove_tree(temporary); });
    throw;
  }
  return {.path = path, .global_step = global_step};
}

void CheckpointStore::commit(const std::string& temporary, const std::string& path) {
  std::string replaced;
  if (files_->exists(path)) {
    const bool damaged = find_damage(path, *files_).has_value();
    replaced = unused_path(path, damaged ? CheckpointPurpose::kDamaged : CheckpointPurpose::kReplaced);
    files_->rename(path, replaced);
  }
  try {
    files_->rename(temporary, path);
  } catch (...) {
    if (!replaced.empty()) or_warn("a checkpoint lost its name", [&] { files_->rename(replaced, path); });
    throw;
  }
  files_->sync_directory(directory_);
  if (!replaced.empty()) or_warn("a replaced checkpoint stays behind", [&] { remove_replaced(replaced); });
}

void CheckpointStore::clean_up() {
  for (const std::string& name : files_->list(directory_)) {
    const std::optional<CheckpointName> parsed = parse_checkpoint_name(name);
    if (!parsed) continue;
    const std::string path = core::join_path(directory_, name);
    if (parsed->purpose == CheckpointPurpose::kTemporary) {
      or_warn("a leftover of an earlier run stays behind", [&] { files_->remove_tree(path); });
    } else if (parsed->purpose == CheckpointPurpose::kReplaced) {
      clean_up_replaced(path, core::join_path(directory_, parsed->plain));
    }
  }
}

// What a crash in commit() left: before its second rename the old checkpoint is the one there is, after it the new one.
void CheckpointStore::clean_up_replaced(const std::string& path, const std::string& final_path) {
  if (!files_->exists(final_path)) return files_->rename(path, final_path);
  if (find_damage(final_path, *files_)) return;  // then this is the better one, and is left for people to look at
  or_warn("a leftover of an earlier run stays behind", [&] {
    // Where the sync of commit() has failed, the disk may still have the old one under the final name.
    files_->sync_directory(directory_);
    remove_replaced(path);
  });
}

// Keeps it if it is damaged. Renames it before removing: what is half removed must not look like a damaged checkpoint.
void CheckpointStore::remove_replaced(const std::string& path) {
  if (parse_checkpoint_name(core::base_name(path))->purpose == CheckpointPurpose::kDamaged) return;
  if (find_damage(path, *files_)) {
    set_aside(path);
    return;
  }
  const std::string temporary = unused_path(path, CheckpointPurpose::kTemporary);
  files_->rename(path, temporary);
  files_->remove_tree(temporary);
}

std::string CheckpointStore::set_aside(const std::string& path) {
  std::string aside = unused_path(path, CheckpointPurpose::kDamaged);
  files_->rename(path, aside);
  files_->sync_directory(directory_);
  return aside;
}

// Next to a checkpoint's plain path, also when `path` has a purpose already.
std::string CheckpointStore::unused_path(const std::string& path, CheckpointPurpose purpose) const {
  const std::string name = core::base_name(path);
  const std::string plain = core::join_path(directory_, parse_checkpoint_name(name)->plain);
  std::string unused = checkpoint_path_for(purpose, plain);
  // Numbers of processes come again, and what is set aside stays.
  while (files_->exists(unused)) unused = checkpoint_path_for(purpose, plain);
  return unused;
}

void CheckpointStore::prune(int64_t saved_step) {
  if (max_to_keep_ <= 0) return;
  const std::vector<CheckpointInfo> checkpoints = list();
  auto excess = static_cast<int64_t>(checkpoints.size()) - max_to_keep_;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (excess <= 0) break;
    // A run that starts over in a directory of later checkpoints keeps its own.
    if (checkpoint.global_step == saved_step) continue;
    // Renamed first: a checkpoint that is half removed must not look like one.
    const std::string temporary = unused_path(checkpoint.path, CheckpointPurpose::kTemporary);
    files_->rename(checkpoint.path, temporary);
    files_->remove_tree(temporary);
    --excess;
  }
}

std::vector<CheckpointInfo> CheckpointStore::list() const {
  return list_checkpoints(directory_, *files_).intact;
}

std::optional<CheckpointInfo> CheckpointStore::latest() const {
  formats::refuse_tensorflow_checkpoint(core::without_slashes(directory_), *files_);
  CheckpointListing listing = list_checkpoints(directory_, *files_);
  if (const DamagedCheckpoint* damage = listing.newest_damage()) throw damage->error;
  if (listing.intact.empty()) return std::nullopt;
  return std::move(listing.intact.back());
}

}  // namespace trainyard::train
