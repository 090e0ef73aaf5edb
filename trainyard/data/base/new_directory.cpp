#include "trainyard/data/base/new_directory.h"

#include <algorithm>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/files/output_path.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;
using FillDirectory = std::function<void(const std::string& unfinished)>;

constexpr const char* kUnfinished = ".unfinished";
constexpr const char* kUnfinishedLock = ".unfinished.lock";

// Also without "/." at the end.
std::string without_last_slash(std::string path) {
  path = core::without_slashes(std::move(path));
  while (path.size() > 1 && path.ends_with("/.")) path = core::without_slashes(path.substr(0, path.size() - 1));
  return path;
}

Error not_an_empty_directory(const std::string& directory) {
  return {ErrorCode::kInvalidArgument,
          {.problem = "output directory exists and is not empty",
           .where = directory,
           .remedy = "name a new directory, or remove this one"}};
}

// What make_new_directory() itself writes there does not count.
void require_empty(core::FileSystem& files, const std::string& directory) {
  if (!files.info(directory).is_directory) throw not_an_empty_directory(directory);
  const std::vector<std::string> names = files.list(directory);
  const bool empty = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name == kUnfinished || name == kUnfinishedLock;
  });
  if (!empty) throw not_an_empty_directory(directory);
}

void remove_after_error(const std::string& path, core::FileSystem& files) {
  try {
    files.remove_tree(path);
  } catch (const Error&) {
    // The first error is the one to tell.
  }
}

// Calls `fill`, then `finish`, which gives what `unfinished` holds its final name.
void fill_and_finish(const std::string& unfinished, core::FileSystem& files, const FillDirectory& fill,
                     const std::function<void()>& finish) {
  files.remove_tree(unfinished);  // of a run that was interrupted
  files.make_directories(unfinished);
  try {
    fill(unfinished);
    files.sync_directory(unfinished);
    finish();
  } catch (...) {
    remove_after_error(unfinished, files);
    throw;
  }
}

void move_entries_up(const std::string& unfinished, const std::string& directory, core::FileSystem& files) {
  std::vector<std::string> moved;
  try {
    for (const std::string& name : files.list(unfinished)) {
      const std::string path = core::join_path(directory, name);
      files.rename(core::join_path(unfinished, name), path);
      moved.push_back(path);
    }
    files.sync_directory(directory);
  } catch (...) {
    for (const std::string& path : moved) remove_after_error(path, files);
    throw;
  }
  files.remove_tree(unfinished);  // last: require_finished() looks for it
  files.sync_directory(directory);
}

void fill_existing_directory(const std::string& directory, core::FileSystem& files, const FillDirectory& fill) {
  require_empty(files, directory);  // before a lock is written into a directory of something else
  const core::LockFile lock(core::join_path(directory, kUnfinishedLock));
  require_empty(files, directory);
  const std::string unfinished = core::join_path(directory, kUnfinished);
  fill_and_finish(unfinished, files, fill, [&] {
    require_empty(files, directory);  // moving would replace a file that another program has put there meanwhile
    move_entries_up(unfinished, directory, files);
  });
}

void fill_missing_directory(const std::string& directory, core::FileSystem& files, const FillDirectory& fill) {
  const std::string parent = core::parent_path(directory);
  files.make_directories(parent);
  const core::LockFile lock(directory + kUnfinishedLock);
  if (files.exists(directory)) throw not_an_empty_directory(directory);  // another process was quicker
  const std::string unfinished = directory + kUnfinished;
  fill_and_finish(unfinished, files, fill, [&] {
    files.rename(unfinished, directory);
    files.sync_directory(parent);
  });
}

}  // namespace

void make_new_directory(const std::string& directory, core::FileSystem& files, const FillDirectory& fill) {
  const std::string path = without_last_slash(directory);
  if (files.exists(path)) return fill_existing_directory(path, files, fill);
  // A link whose target is missing leads where it leads.
  fill_missing_directory(without_last_slash(core::resolve_user_output(path).path), files, fill);
}

void require_finished(core::FileSystem& files, const std::string& directory) {
  const std::string unfinished = core::join_path(directory, kUnfinished);
  if (!files.exists(unfinished)) return;
  throw Error(ErrorCode::kCorruptData,
              {.problem = "directory is not written to its end",
               .where = directory,
               .expected = "no " + unfinished,
               .actual = "one",
               .remedy = "wait for the command that writes it; if none does, remove the directory and write it again"});
}

}  // namespace trainyard::data
