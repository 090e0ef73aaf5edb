// Reads and writes HDF5 files with libhdf5: groups, datasets of float32 and attributes of text. A library that was
// built without it (TRAINYARD_HDF5) throws kUnsupported and names the package.
//
//   Hdf5Group root{.attributes = {{"backend", "tensorflow"}}};
//   root.groups.push_back({.name = "fc", .datasets = {{"kernel", {2, 3}, [] { return std::vector<float>(6); }}}});
//   write_hdf5("weights.h5", root);
//   Hdf5File("weights.h5").read("/fc/kernel").values;
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// One text, or an array of texts: of fixed length, as NumPy's bytes are stored. One text of more than 60,000 bytes has
// HDF5's variable length instead, as h5py's str.
using Hdf5Attribute = std::variant<std::string, std::vector<std::string>>;

struct Hdf5Dataset {
  std::string name{};  // "fc/kernel" lies in a group "fc"
  std::vector<int64_t> shape{};
  std::function<std::vector<float>()> values{};  // as many as the product of the shape, in C order; called when written
};

struct Hdf5Group {
  std::string name{};  // "body/fc" lies in a group "body", which is made where it is missing
  std::vector<std::pair<std::string, Hdf5Attribute>> attributes{};
  std::vector<Hdf5Dataset> datasets{};
  std::vector<Hdf5Group> groups{};
};

// Returns the content of the file. The same tree gives the same bytes. Any thread may call it, but only one at a time,
// because libhdf5 has state of its own. Throws kInvalidArgument for numbers that do not fit their shape and for names
// that are there twice or lie in a dataset, and kInternal with libhdf5's message for what it rejects: arrays of texts
// of more than 64 KiB.
[[nodiscard]] std::string encode_hdf5(const Hdf5Group& root);

// Writes encode_hdf5() into a file atomically.
void write_hdf5(const std::string& path, const Hdf5Group& root, core::FileSystem& files = core::local_file_system());

struct Hdf5Floats {
  std::vector<int64_t> shape{};
  std::vector<float> values{};  // in C order
};

// A file that is open for reading. libhdf5 has global state, so calls on all files are serialized. Paths of groups and
// datasets begin at the root: "/", "/model_weights/fc". Any thread.
class Hdf5File {
 public:
  // Opens a file. Throws kNotFound when it does not exist, kUnsupported for a zip archive such as Keras' .keras files,
  // kCorruptData when libhdf5 cannot open it.
  explicit Hdf5File(const std::string& path);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const std::string& path() const { return path_; }
  bool has(const std::string& object) const;
  // Return an attribute of a group, a text or an array of texts, or nothing when there is none of that name. Throw
  // kCorruptData for an attribute of another type, or one that cannot be read.
  [[nodiscard]] std::optional<std::string> text(const std::string& group, const std::string& attribute) const;
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& group,
                                                              const std::string& attribute) const;
  // Reads a dataset of numbers, converted to float32. Throws kNotFound when there is none of that name, kCorruptData
  // when it cannot be read, contains no numbers, or claims to be larger than the file can be.
  Hdf5Floats read(const std::string& dataset) const;

 private:
  std::optional<std::vector<std::string>> read_texts(const std::string& group, const std::string& attribute) const;
  std::string path_;
  int64_t file_ = -1;  // libhdf5's
};

}  // namespace trainyard::formats
