#include "trainyard/data/base/new_directory.h"

#include "trainyard/core/base/error.h"

namespace trainyard::data {

using core::Error;
using core::ErrorCode;

void make_new_directory(const std::string& directory, core::FileSystem& files,
                        const std::function<void(const std::string& unfinished)>& fill) {
  if (files.exists(directory)) {
    if (!files.info(directory).is_directory || !files.list(directory).empty()) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "output directory exists and is not empty",
                                                .where = directory,
                                                .remedy = "name a new directory, or remove this one"});
    }
    files.remove_tree(directory);
  }
  const std::string parent = core::parent_path(directory);
  files.make_directories(parent);
  const std::string unfinished = directory + ".unfinished";
  files.remove_tree(unfinished);  // of a run that was interrupted
  files.make_directories(unfinished);
  try {
    fill(unfinished);
    files.sync_directory(unfinished);
    files.rename(unfinished, directory);
    files.sync_directory(parent);
  } catch (...) {
    try {
      files.remove_tree(unfinished);
    } catch (const Error&) {
      // The first error is the one to tell.
    }
    throw;
  }
}

}  // namespace trainyard::data
