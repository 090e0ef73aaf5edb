// Reads and writes the file "classnames.txt" of a data set: the names of its classes, one a line, in the order of their
// labels (docs/formats/class_names.md). It numbers class folders whose names do not sort as the labels do, and names
// labels that are numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// The file of names next to CIFAR-10's binary batches.
inline constexpr const char* kCifar10NamesFile = "batches.meta.txt";

// Returns the names in the file of `directory`, which holds shards or class folders. When it has none and is named for
// a subset (DIR/train), returns the names of the parent folder. Empty when there is no such file. Throws kCorruptData
// when it is not a list of names.
[[nodiscard]] std::vector<std::string> read_class_names(core::FileSystem& files, const std::string& directory);

// Returns the names in the file `path`, which exists. Throws kCorruptData when it is not a list of names.
[[nodiscard]] std::vector<std::string> read_names_file(core::FileSystem& files, const std::string& path);

// Writes the file into `directory`.
void write_class_names(core::FileSystem& files, const std::string& directory, std::span<const std::string> names);

// Returns read_class_names() when it names all `folders`. Else warns which folders it lacks and returns nothing.
[[nodiscard]] std::vector<std::string> read_folder_order(core::FileSystem& files, const std::string& directory,
                                                         std::span<const std::string> folders);

}  // namespace trainyard::data
