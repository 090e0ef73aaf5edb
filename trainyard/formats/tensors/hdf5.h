// HDF5 files: groups, datasets of float32 and attributes of text, by libhdf5. Written only. A library that was built
// without it (TRAINYARD_HDF5) throws kUnsupported and names the package.
//
//   Hdf5Group root{.attributes = {{"backend", "tensorflow"}}};
//   root.groups.push_back({.name = "fc", .datasets = {{"kernel", {2, 3}, [] { return std::vector<float>(6); }}}});
//   write_hdf5("weights.h5", root);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::formats {

// One text, or an array of texts: of fixed length, as NumPy's bytes are stored.
using Hdf5Attribute = std::variant<std::string, std::vector<std::string>>;

struct Hdf5Dataset {
  std::string name;  // "fc/kernel" lies in a group "fc"
  std::vector<int64_t> shape;
  std::function<std::vector<float>()> values;  // as many as the product of the shape, in C order; called when written
};

struct Hdf5Group {
  std::string name;
  std::vector<std::pair<std::string, Hdf5Attribute>> attributes;
  std::vector<Hdf5Dataset> datasets;
  std::vector<Hdf5Group> groups;
};

// Returns the content of the file. The same tree gives the same bytes. Any thread may call it, but only one at a time,
// because libhdf5 has state of its own. Throws kInvalidArgument for numbers that do not fit their shape, and kInternal
// with libhdf5's message for what it refuses: names that come twice, attributes of more than 64 KiB.
std::string encode_hdf5(const Hdf5Group& root);

// Writes encode_hdf5() into a file, whole or not at all.
void write_hdf5(const std::string& path, const Hdf5Group& root, core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
TRAINYARD_EXPORT_END
