// The file "classnames.txt" beside a data set: what its classes are called, one a line, in the order of their labels
// (docs/formats/class_names.md). It numbers class folders whose names do not sort as the labels do, and names labels
// that are numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// The same beside CIFAR-10's binary batches.
inline constexpr const char* kCifar10NamesFile = "batches.meta.txt";

// Returns the names in the file of `directory`, which holds shards or class folders; where it has none and is named for
// a subset (DIR/train), those of the folder around it. Empty where there is no such file. Throws kCorruptData where it
// is no list of names.
[[nodiscard]] std::vector<std::string> read_class_names(core::FileSystem& files, const std::string& directory);

// Returns the names in the file `path`, which is there. Throws kCorruptData where it is no list of names.
[[nodiscard]] std::vector<std::string> read_names_file(core::FileSystem& files, const std::string& path);

// Writes the file into `directory`.
void write_class_names(core::FileSystem& files, const std::string& directory, std::span<const std::string> names);

// Returns read_class_names() where it names all `folders`, else nothing: then a warning says which it does not.
[[nodiscard]] std::vector<std::string> read_folder_order(core::FileSystem& files, const std::string& directory,
                                                         std::span<const std::string> folders);

}  // namespace trainyard::data
