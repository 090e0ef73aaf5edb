#include "trainyard/formats/tensors/hdf5.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::formats {
namespace {

Hdf5Dataset ramp(const std::string& name, std::vector<int64_t> shape, size_t count) {
  return {name, std::move(shape), [count] {
            std::vector<float> values(count);
            for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) / 4;
            return values;
          }};
}

Hdf5Group sample() {
  Hdf5Group root{.attributes = {{"backend", "tensorflow"}, {"layer_names", std::vector<std::string>{"fc", "longer"}}}};
  root.groups.push_back({.name = "fc", .datasets = {ramp("fc/kernel", {2, 3}, 6)}});
  return root;
}

// The readers are libhdf5's here, h5py's in tests/h5py_reads_weights.py.
TEST(Hdf5, WritesWhatLibhdf5Reads) {
  const core::TempDir temp;
  write_hdf5(temp.file("w.h5"), sample());
  EXPECT_EQ(core::local_file_system().read_file(temp.file("w.h5")), encode_hdf5(sample())) << "other bytes each time";

  const hid_t file = H5Fopen(temp.file("w.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t dataset = H5Dopen2(file, "/fc/fc/kernel", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  float values[2][3] = {};
  ASSERT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
  EXPECT_EQ(values[1][0], 0.75F);
  EXPECT_EQ(values[1][2], 1.25F);

  const hid_t names = H5Aopen(file, "layer_names", H5P_DEFAULT);
  ASSERT_GE(names, 0);
  const hid_t type = H5Aget_type(names);
  ASSERT_EQ(H5Tget_size(type), 6u);
  std::string text(12, '?');
  ASSERT_GE(H5Aread(names, type, text.data()), 0);
  EXPECT_EQ(text, std::string("fc\0\0\0\0longer", 12));
  H5Tclose(type);
  H5Aclose(names);
  H5Dclose(dataset);
  H5Fclose(file);
}

TEST(Hdf5, RefusesWhatCannotBeStored) {
  Hdf5Group root{.datasets = {ramp("kernel", {2, 3}, 5)}};
  EXPECT_EQ(core::message_of([&] { encode_hdf5(root); }),
            "a dataset's shape does not fit its numbers: kernel: expected 6 numbers, got 5");
  root.datasets = {ramp("kernel", {5}, 5), ramp("kernel", {5}, 5)};
  const std::string twice = core::message_of([&] { encode_hdf5(root); }, core::ErrorCode::kInternal);
  EXPECT_NE(twice.find("libhdf5 failed: dataset kernel: "), std::string::npos) << twice;
  const Hdf5Group large{.attributes = {{"names", std::vector<std::string>(70000, "n")}}};
  EXPECT_EQ(core::code_of([&] { encode_hdf5(large); }), core::ErrorCode::kInternal);
  EXPECT_NO_THROW(encode_hdf5(sample())) << "a failure is no state";
}

}  // namespace
}  // namespace trainyard::formats
