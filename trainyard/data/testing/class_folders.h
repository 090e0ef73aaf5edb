// Folders of two classes whose files are named but never decoded.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Writes eight files without an image into each of train/cat and train/dog below `folder`.
inline void write_two_classes(const std::string& folder) {
  core::FileSystem& files = core::local_file_system();
  for (const std::string kind : {"cat", "dog"}) {
    const std::string of_class = core::join_path(folder, "train/" + kind);
    files.make_directories(of_class);
    for (int i = 0; i < 8; ++i) {
      files.write_file_atomically(core::join_path(of_class, std::to_string(i) + ".png"), "not decoded");
    }
  }
}

}  // namespace trainyard::data
