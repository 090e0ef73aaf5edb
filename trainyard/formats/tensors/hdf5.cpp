#include "trainyard/formats/tensors/hdf5.h"

#include "build_values.h"

#include "trainyard/core/base/error.h"

#if TRAINYARD_HDF5

#include <algorithm>
#include <mutex>
#include <numeric>

#include <fmt/format.h>
#include <hdf5.h>

namespace trainyard::formats {
namespace {

// Added to a file in memory each time that it is full.
constexpr size_t kGrowth = size_t{64} << 20;

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

// What libhdf5 gave; a negative number is its failure.
template <typename Number>
Number checked(Number result, const std::string& what) {
  if (result >= 0) return result;
  throw core::Error(core::ErrorCode::kInternal, {.problem = "libhdf5 failed", .where = what, .actual = last_message()});
}

// An object of libhdf5, closed at the end.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(checked(id, what)), close_(close) {}
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t get() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void write_attribute(hid_t owner, const std::string& name, const Hdf5Attribute& attribute) {
  const auto* const text = std::get_if<std::string>(&attribute);
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

void write_dataset(hid_t group, const Hdf5Dataset& dataset) {
  const std::vector<float> values = dataset.values();
  const int64_t expected = std::accumulate(dataset.shape.begin(), dataset.shape.end(), int64_t{1}, std::multiplies<>());
  if (expected != static_cast<int64_t>(values.size())) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a dataset's shape does not fit its numbers",
                                                          .where = dataset.name,
                                                          .expected = fmt::format("{} numbers", expected),
                                                          .actual = fmt::format("{}", values.size())});
  }
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
    const Handle handle(H5Gcreate2(place, child.name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose,
                        "group " + child.name);
    write_group(handle.get(), child);
  }
}

}  // namespace

std::string encode_hdf5(const Hdf5Group& root) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  checked(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "error messages");  // ours, not printed ones
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file");
  checked(H5Pset_fapl_core(access.get(), kGrowth, /*backing_store=*/false), "file");
  const Handle file(H5Fcreate("in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, "file");
  write_group(file.get(), root);
  checked(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "file");
  std::string content(static_cast<size_t>(checked(H5Fget_file_image(file.get(), nullptr, 0), "file")), '\0');
  checked(H5Fget_file_image(file.get(), content.data(), content.size()), "file");
  return content;
}

#else

namespace trainyard::formats {

std::string encode_hdf5(const Hdf5Group&) {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "this build has no HDF5",
                     .remedy = "apt-get install libhdf5-dev, configure with -DTRAINYARD_HDF5=ON and build again"});
}

#endif

void write_hdf5(const std::string& path, const Hdf5Group& root, core::FileSystem& files) {
  files.write_file_atomically(path, encode_hdf5(root));
}

}  // namespace trainyard::formats
