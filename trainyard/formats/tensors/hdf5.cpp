#include "trainyard/formats/tensors/hdf5.h"

#include "build_values.h"

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"

#if TRAINYARD_HDF5

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <string_view>

#include <fmt/format.h>
#include <hdf5.h>

namespace trainyard::formats {
namespace {

// Added to a file in memory each time that it is full.
constexpr size_t kGrowth = size_t{64} << 20;
constexpr size_t kLongText = 60000;                // bytes; HDF5 has 64 KiB for an attribute with its own parts
constexpr size_t kLongestTexts = size_t{1} << 30;  // bytes of an attribute that are taken for real
constexpr hsize_t kMostPacked = 1100;              // times that HDF5's own compressions make numbers smaller at most

using core::Error;
using core::ErrorCode;

// Keeps other threads out of the library as long as the result lives. Its errors are ours from then on, not printed.
std::unique_lock<std::mutex> lock_hdf5() {
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return lock;
}

// Returns what the last call that failed says, the innermost reason.
std::string last_message() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_DOWNWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  return text;
}

// Returns what the library gave; a negative number is its failure, and throws `code`.
template <typename Number>
Number checked(Number result, const std::string& what, core::ErrorCode code = core::ErrorCode::kInternal) {
  if (result >= 0) return result;
  throw core::Error(code, {.problem = code == core::ErrorCode::kInternal ? "libhdf5 failed" : "HDF5 cannot be read",
                           .where = what,
                           .actual = last_message()});
}

// An object of the library, closed at the end.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what, core::ErrorCode code = core::ErrorCode::kInternal)
      : id_(checked(id, what, code)), close_(close) {}
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t get() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// One text of any length, in the file's heap: an attribute itself holds less than 64 KiB.
void write_long_attribute(hid_t owner, const std::string& name, const std::string& text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, name);
  checked(H5Tset_size(type.get(), H5T_VARIABLE), name);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, name);
  const Handle stored(H5Acreate2(owner, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                      "attribute " + name);
  const char* const first = text.c_str();
  checked(H5Awrite(stored.get(), type.get(), &first), "attribute " + name);
}

void write_attribute(hid_t owner, const std::string& name, const Hdf5Attribute& attribute) {
  const auto* const text = std::get_if<std::string>(&attribute);
  if (text && text->size() > kLongText) return write_long_attribute(owner, name, *text);
  const std::vector<std::string> texts = text ? std::vector{*text} : std::get<std::vector<std::string>>(attribute);
  size_t length = 1;
  for (const std::string& each : texts) length = std::max(length, each.size());
  std::string bytes;
  for (const std::string& each : texts) bytes += each + std::string(length - each.size(), '\0');
  const hsize_t count = texts.size();

  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, name);
  checked(H5Tset_size(type.get(), length), name);
  checked(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), name);
  const Handle space(text ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose, name);
  const Handle stored(H5Acreate2(owner, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                      "attribute " + name);
  if (!texts.empty()) checked(H5Awrite(stored.get(), type.get(), bytes.data()), "attribute " + name);
}

bool is_group(hid_t place, const std::string& name) {
  const hid_t opened = H5Gopen2(place, name.c_str(), H5P_DEFAULT);
  if (opened < 0) return false;
  H5Gclose(opened);
  return true;
}

// Throws where something has the name already, or where a part of it, which must be a group, is a dataset.
void require_free_name(hid_t place, const std::string& kind, const std::string& name) {
  for (size_t end = name.find('/');; end = name.find('/', end + 1)) {
    const std::string part = name.substr(0, end);
    if (H5Lexists(place, part.c_str(), H5P_DEFAULT) <= 0) return;
    const bool taken = end == std::string::npos, groups = is_group(place, part);
    if (!taken && groups) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = taken ? "a name is there twice in an HDF5 file" : "a dataset of HDF5 holds no others",
                 .where = kind + " " + name,
                 .actual = fmt::format("a {} {}", groups ? "group" : "dataset", part),
                 .remedy = "give one of the two another name"});
  }
}

void write_dataset(hid_t group, const Hdf5Dataset& dataset) {
  const std::vector<float> values = dataset.values();
  const int64_t expected = std::accumulate(dataset.shape.begin(), dataset.shape.end(), int64_t{1}, std::multiplies<>());
  if (expected != static_cast<int64_t>(values.size())) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a dataset's shape does not fit its numbers",
                                                          .where = dataset.name,
                                                          .expected = fmt::format("{} numbers", expected),
                                                          .actual = fmt::format("{}", values.size())});
  }
  require_free_name(group, "dataset", dataset.name);
  const std::vector<hsize_t> shape(dataset.shape.begin(), dataset.shape.end());
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, dataset.name);
  checked(H5Pset_create_intermediate_group(links.get(), 1), dataset.name);
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, dataset.name);
  checked(H5Pset_obj_track_times(properties.get(), false), dataset.name);  // the same bytes tomorrow
  const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, dataset.name);
  const Handle stored(
      H5Dcreate2(group, dataset.name.c_str(), H5T_IEEE_F32LE, space.get(), links.get(), properties.get(), H5P_DEFAULT),
      H5Dclose, "dataset " + dataset.name);
  checked(H5Dwrite(stored.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), dataset.name);
}

void write_group(hid_t place, const Hdf5Group& group) {
  for (const auto& [name, attribute] : group.attributes) write_attribute(place, name, attribute);
  for (const Hdf5Dataset& dataset : group.datasets) write_dataset(place, dataset);
  for (const Hdf5Group& child : group.groups) {
    require_free_name(place, "group", child.name);
    const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, child.name);
    checked(H5Pset_create_intermediate_group(links.get(), 1), child.name);
    const Handle handle(H5Gcreate2(place, child.name.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose,
                        "group " + child.name);
    write_group(handle.get(), child);
  }
}

Handle open_handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) {
  return Handle(id, close, what, ErrorCode::kCorruptData);
}

[[noreturn]] void refuse(std::string problem, const std::string& where, std::string actual = "") {
  throw Error(ErrorCode::kCorruptData, {.problem = std::move(problem), .where = where, .actual = std::move(actual)});
}

// Reads texts of one length each, which end with zeros or spaces.
std::vector<std::string> fixed_texts(hid_t attribute, hid_t type, hsize_t count, const std::string& where) {
  const size_t length = H5Tget_size(type);
  if (length == 0 || count > kLongestTexts / length) refuse("an attribute is too long", where);
  std::string bytes(length * count, '\0');
  checked(H5Aread(attribute, type, bytes.data()), where, ErrorCode::kCorruptData);
  std::vector<std::string> texts;
  for (hsize_t i = 0; i < count; ++i) {
    std::string text = bytes.substr(i * length, length);
    text.erase(std::min(text.find('\0'), text.size()));
    texts.push_back(std::move(text));
  }
  return texts;
}

// Reads texts of any length, which the library allocates and must free.
std::vector<std::string> long_texts(hid_t attribute, hid_t type, hid_t space, hsize_t count, const std::string& where) {
  if (count > kLongestTexts / sizeof(char*)) refuse("an attribute is too long", where);
  std::vector<char*> pointers(count, nullptr);
  checked(H5Aread(attribute, type, pointers.data()), where, ErrorCode::kCorruptData);
  std::vector<std::string> texts;
  texts.reserve(count);
  for (const char* const text : pointers) texts.emplace_back(text == nullptr ? "" : text);
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, pointers.data());
  return texts;
}

// Returns whether a file begins as zip archives do. HDF5 may begin behind a block of the user's, but not behind this.
bool is_zip_archive(const std::string& path) {
  std::array<char, 4> first{};
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), first.size());
  return file.good() && std::string_view(first.data(), first.size()) == "PK\x03\x04";
}

// Throws where a dataset says that it holds more numbers than the file can.
void require_storage(hid_t dataset, hsize_t count, const std::string& where) {
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (count == 0 || (stored > 0 && count / kMostPacked <= stored)) return;
  refuse("a dataset is larger than what the file holds of it", where,
         fmt::format("{} numbers in {} bytes", count, stored));
}

}  // namespace

std::string encode_hdf5(const Hdf5Group& root) {
  const auto lock = lock_hdf5();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file");
  checked(H5Pset_fapl_core(access.get(), kGrowth, /*backing_store=*/false), "file");
  const Handle file(H5Fcreate("in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, "file");
  write_group(file.get(), root);
  checked(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "file");
  std::string content(static_cast<size_t>(checked(H5Fget_file_image(file.get(), nullptr, 0), "file")), '\0');
  checked(H5Fget_file_image(file.get(), content.data(), content.size()), "file");
  return content;
}

Hdf5File::Hdf5File(const std::string& path) : path_(path) {
  const auto lock = lock_hdf5();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::kNotFound, {.problem = "there is no such file", .where = path});
  }
  if (is_zip_archive(path)) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "a zip archive, as Keras 3 writes under names in .keras, is not read",
                 .where = path,
                 .expected = "HDF5",
                 .remedy = "load it in Keras and save it as HDF5: model.save(\"model.h5\")"});
  }
  file_ = checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path, ErrorCode::kCorruptData);
}

Hdf5File::~Hdf5File() {
  const auto lock = lock_hdf5();
  H5Fclose(file_);
}

bool Hdf5File::has(const std::string& object) const {
  const auto lock = lock_hdf5();
  // The library asks for each part of the path by itself.
  for (size_t end = object.find('/', 1); end != std::string::npos; end = object.find('/', end + 1)) {
    if (H5Lexists(file_, object.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return object == "/" || H5Lexists(file_, object.c_str(), H5P_DEFAULT) > 0;
}

std::optional<std::vector<std::string>> Hdf5File::read_texts(const std::string& group,
                                                             const std::string& attribute) const {
  const auto lock = lock_hdf5();
  const std::string where = fmt::format("{}: attribute {} of {}", path_, attribute, group);
  const htri_t there = H5Aexists_by_name(file_, group.c_str(), attribute.c_str(), H5P_DEFAULT);
  if (checked(there, where, ErrorCode::kCorruptData) == 0) return std::nullopt;
  const Handle opened =
      open_handle(H5Aopen_by_name(file_, group.c_str(), attribute.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, where);
  const Handle type = open_handle(H5Aget_type(opened.get()), H5Tclose, where);
  const Handle space = open_handle(H5Aget_space(opened.get()), H5Sclose, where);
  const auto count =
      static_cast<hsize_t>(checked(H5Sget_simple_extent_npoints(space.get()), where, ErrorCode::kCorruptData));
  if (count == 0) return std::vector<std::string>();
  if (H5Tget_class(type.get()) != H5T_STRING) refuse("an attribute is no text", where);
  return H5Tis_variable_str(type.get()) > 0 ? long_texts(opened.get(), type.get(), space.get(), count, where)
                                            : fixed_texts(opened.get(), type.get(), count, where);
}

Hdf5Floats Hdf5File::read(const std::string& dataset) const {
  const std::string where = path_ + ": " + dataset;
  if (!has(dataset)) throw Error(ErrorCode::kNotFound, {.problem = "there is no such dataset", .where = where});
  const auto lock = lock_hdf5();
  const Handle opened = open_handle(H5Dopen2(file_, dataset.c_str(), H5P_DEFAULT), H5Dclose, where);
  const Handle type = open_handle(H5Dget_type(opened.get()), H5Tclose, where);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_FLOAT && kind != H5T_INTEGER) refuse("a dataset holds no numbers", where);
  const Handle space = open_handle(H5Dget_space(opened.get()), H5Sclose, where);
  const int rank = checked(H5Sget_simple_extent_ndims(space.get()), where, ErrorCode::kCorruptData);
  std::vector<hsize_t> extents(static_cast<size_t>(rank));
  checked(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), where, ErrorCode::kCorruptData);
  const auto count =
      static_cast<hsize_t>(checked(H5Sget_simple_extent_npoints(space.get()), where, ErrorCode::kCorruptData));
  require_storage(opened.get(), count, where);
  Hdf5Floats floats{.shape = {extents.begin(), extents.end()}, .values = std::vector<float>(count)};
  checked(H5Dread(opened.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, floats.values.data()), where,
          ErrorCode::kCorruptData);
  return floats;
}

#else

namespace trainyard::formats {

std::string encode_hdf5(const Hdf5Group&) {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "this build has no HDF5",
                     .remedy = "apt-get install libhdf5-dev, configure with -DTRAINYARD_HDF5=ON and build again"});
}

Hdf5File::Hdf5File(const std::string& path) : path_(path) {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "this build has no HDF5",
                     .where = path_,
                     .remedy = "apt-get install libhdf5-dev, configure with -DTRAINYARD_HDF5=ON and build again"});
}
Hdf5File::~Hdf5File() = default;
bool Hdf5File::has(const std::string&) const {
  return file_ >= 0;
}
std::optional<std::vector<std::string>> Hdf5File::read_texts(const std::string&, const std::string&) const {
  return std::nullopt;
}
Hdf5Floats Hdf5File::read(const std::string&) const {
  return {};
}

#endif

std::optional<std::string> Hdf5File::text(const std::string& group, const std::string& attribute) const {
  const auto all = read_texts(group, attribute);
  if (!all || all->empty()) return std::nullopt;
  return all->front();
}

std::optional<std::vector<std::string>> Hdf5File::texts(const std::string& group, const std::string& attribute) const {
  return read_texts(group, attribute);
}

void write_hdf5(const std::string& path, const Hdf5Group& root, core::FileSystem& files) {
  core::write_user_output(path, encode_hdf5(root), files);
}

}  // namespace trainyard::formats
