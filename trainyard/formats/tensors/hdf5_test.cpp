#include "trainyard/formats/tensors/hdf5.h"

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <hdf5.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/working_directory.h"

namespace trainyard::formats::hdf5_test {
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

TEST(Hdf5, ReadsWhatItWrote) {
  const core::TempDir temp;
  Hdf5Group root = sample();
  const std::string long_text(70000, 'x');
  root.attributes.emplace_back("config", long_text);
  root.groups[0].datasets.push_back(ramp("scalar", {}, 1));
  root.groups[0].datasets.push_back(ramp("none", {0, 3}, 0));
  write_hdf5(temp.file("w.h5"), root);
  const Hdf5File file(temp.file("w.h5"));
  EXPECT_EQ(file.text("/", "backend"), "tensorflow");
  EXPECT_EQ(file.text("/", "config"), long_text);
  EXPECT_EQ(file.text("/", "none"), std::nullopt);
  EXPECT_EQ(file.texts("/", "layer_names"), (std::vector<std::string>{"fc", "longer"}));
  EXPECT_TRUE(file.has("/fc/fc/kernel"));
  EXPECT_FALSE(file.has("/fc/gone/kernel"));
  EXPECT_FALSE(file.has("/gone"));
  EXPECT_EQ(file.read("/fc/fc/kernel").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.read("/fc/fc/kernel").values, (std::vector<float>{0, 0.25F, 0.5F, 0.75F, 1, 1.25F}));
  EXPECT_EQ(file.read("/fc/scalar").values.size(), 1u);
  EXPECT_EQ(file.read("/fc/none").shape, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(core::code_of([&] { file.read("/fc/gone"); }), core::ErrorCode::kNotFound);
  EXPECT_EQ(core::code_of([&] { file.read("/fc/fc"); }), core::ErrorCode::kCorruptData);
}

// h5py writes texts of any length, numbers of any type and attributes that are no texts.
TEST(Hdf5, ReadsWhatOtherProgramsWrite) {
  const core::TempDir temp;
  const hid_t file = H5Fcreate(temp.file("w.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hsize_t two = 2;
  const hid_t space = H5Screate_simple(1, &two, nullptr), text = H5Tcopy(H5T_C_S1);
  ASSERT_GE(H5Tset_size(text, H5T_VARIABLE), 0);
  const char* const texts[2] = {"fc", "a longer name"};
  const hid_t names = H5Acreate2(file, "names", text, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Awrite(names, text, texts), 0);
  const int numbers[2] = {-3, 70000};
  const hid_t version = H5Acreate2(file, "version", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Awrite(version, H5T_NATIVE_INT, numbers), 0);
  const hid_t integers = H5Dcreate2(file, "integers", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Dwrite(integers, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers), 0);
  const hid_t words = H5Dcreate2(file, "words", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Dwrite(words, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts), 0);
  H5Aclose(names);
  H5Aclose(version);
  H5Dclose(integers);
  H5Dclose(words);
  H5Tclose(text);
  H5Sclose(space);
  H5Fclose(file);

  const Hdf5File opened(temp.file("w.h5"));
  EXPECT_TRUE(opened.has("/"));
  EXPECT_EQ(opened.texts("/", "names"), (std::vector<std::string>{"fc", "a longer name"}));
  EXPECT_EQ(opened.text("/", "names"), "fc");
  EXPECT_EQ(opened.read("/integers").values, (std::vector<float>{-3, 70000}));
  const auto message = [](const std::function<void()>& read) {
    return core::message_of(read, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(message([&] { opened.texts("/", "version"); }),
            "an attribute is no text: " + temp.file("w.h5") + ": attribute version of /");
  EXPECT_EQ(message([&] { opened.read("/words"); }), "a dataset holds no numbers: " + temp.file("w.h5") + ": /words");
}

TEST(Hdf5, AListOfTextsMayBeEmpty) {
  const core::TempDir temp;
  write_hdf5(temp.file("w.h5"), {.attributes = {{"names", std::vector<std::string>()}}});
  const Hdf5File file(temp.file("w.h5"));
  EXPECT_EQ(file.texts("/", "names"), std::vector<std::string>());
  EXPECT_EQ(file.text("/", "names"), std::nullopt);
  EXPECT_EQ(file.texts("/", "others"), std::nullopt);
}

// No prefix of a file crashes, hangs or passes for the whole.
TEST(Hdf5, RefusesFilesThatAreCutOff) {
  const core::TempDir temp;
  const std::string whole = encode_hdf5(sample());
  for (size_t length = 0; length < whole.size(); length += 61) {
    core::local_file_system().write_file_atomically(temp.file("cut.h5"), whole.substr(0, length));
    EXPECT_EQ(core::code_of([&] {
                const Hdf5File file(temp.file("cut.h5"));
                file.texts("/", "layer_names");
                file.read("/fc/fc/kernel");
              }),
              core::ErrorCode::kCorruptData)
        << length;
  }
  EXPECT_EQ(core::code_of([&] { const Hdf5File file(temp.file("gone.h5")); }), core::ErrorCode::kNotFound);
}

// A dataset that was declared and never written may claim any size.
TEST(Hdf5, RefusesDatasetsLargerThanTheFile) {
  const core::TempDir temp;
  const hid_t file = H5Fcreate(temp.file("huge.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t extents[2] = {hsize_t{1} << 20, hsize_t{1} << 20};
  const hid_t space = H5Screate_simple(2, extents, nullptr);
  H5Dclose(H5Dcreate2(file, "/huge", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Fclose(file);
  const Hdf5File opened(temp.file("huge.h5"));
  EXPECT_EQ(core::message_of([&] { opened.read("/huge"); }, core::ErrorCode::kCorruptData),
            "a dataset is larger than what the file holds of it: " + temp.file("huge.h5") +
                ": /huge: got 1099511627776 numbers in 0 bytes");
}

TEST(Hdf5, RefusesWhatCannotBeStored) {
  Hdf5Group root{.datasets = {ramp("kernel", {2, 3}, 5)}};
  EXPECT_EQ(core::message_of([&] { encode_hdf5(root); }),
            "a dataset's shape does not fit its numbers: kernel: expected 6 numbers, got 5");
  root.datasets = {ramp("kernel", {5}, 5), ramp("kernel", {5}, 5)};
  EXPECT_EQ(core::message_of([&] { encode_hdf5(root); }, core::ErrorCode::kInvalidArgument),
            "a name is there twice in an HDF5 file: dataset kernel: got a dataset kernel; give one of the two another "
            "name");
  const Hdf5Group large{.attributes = {{"names", std::vector<std::string>(70000, "n")}}};
  EXPECT_EQ(core::code_of([&] { encode_hdf5(large); }), core::ErrorCode::kInternal);
  EXPECT_NO_THROW(encode_hdf5(sample())) << "a failure is no state";
}

TEST(Hdf5, EncodesInMemoryAlone) {
  const core::TempDir temp;
  const WorkingDirectory here(temp.path());
  EXPECT_FALSE(encode_hdf5(sample()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(".")) << "a file of the library";
}

// As h5py makes them. Names of layers may be those of TensorFlow's scopes.
TEST(Hdf5, AGroupMayLieInGroupsThatAreMissing) {
  const core::TempDir temp;
  Hdf5Group root;
  root.groups.push_back({.name = "body/fc", .datasets = {ramp("body/fc/kernel", {2, 3}, 6)}});
  root.groups.push_back({.name = "body/head", .datasets = {ramp("bias", {4}, 4)}});
  write_hdf5(temp.file("scopes.h5"), root);
  const Hdf5File file(temp.file("scopes.h5"));
  EXPECT_EQ(file.read("/body/fc/body/fc/kernel").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.read("/body/head/bias").values.size(), 4U);
}

TEST(Hdf5, SaysWhatIsMissingOrWrongAndWhere) {
  const core::TempDir temp;
  EXPECT_EQ(core::message_of([&] { const Hdf5File file(temp.file("gone.h5")); }, core::ErrorCode::kNotFound),
            "there is no such file: " + temp.file("gone.h5"));
  core::local_file_system().write_file_atomically(temp.file("text"), "text");
  EXPECT_EQ(core::message_of([&] { const Hdf5File file(temp.file("text")); }, core::ErrorCode::kCorruptData),
            "HDF5 cannot be read: " + temp.file("text") + ": got file signature not found")
      << "the library's innermost reason";
  write_hdf5(temp.file("w.h5"), sample());
  const Hdf5File file(temp.file("w.h5"));
  EXPECT_EQ(core::message_of([&] { static_cast<void>(file.read("/fc/gone")); }, core::ErrorCode::kNotFound),
            "there is no such dataset: " + temp.file("w.h5") + ": /fc/gone");
}

// What fits into an attribute itself stays there, where every reader finds it.
TEST(Hdf5, TextsOfMoreThan60000BytesAreOfVariableLength) {
  const core::TempDir temp;
  write_hdf5(temp.file("w.h5"),
             {.attributes = {{"short", std::string(60000, 'x')}, {"long", std::string(60001, 'x')}}});
  const hid_t file = H5Fopen(temp.file("w.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for (const char* const name : {"short", "long"}) {
    const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    ASSERT_GE(attribute, 0);
    const hid_t type = H5Aget_type(attribute);
    EXPECT_EQ(H5Tis_variable_str(type) > 0, name[0] == 'l') << name;
    H5Tclose(type);
    H5Aclose(attribute);
  }
  H5Fclose(file);
}

// A group may be there because another part lies in it.
TEST(Hdf5, NamesThatExcludeEachOtherAreNamed) {
  const auto problem = [](const Hdf5Group& root) {
    return core::message_of([&] { encode_hdf5(root); }, core::ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(problem({.datasets = {ramp("body/fc", {2}, 2), ramp("body", {3}, 3)}}),
            "a name is there twice in an HDF5 file: dataset body: got a group body; give one of the two another name");
  EXPECT_EQ(problem({.datasets = {ramp("body", {3}, 3), ramp("body/fc/kernel", {2}, 2)}}),
            "a dataset of HDF5 holds no others: dataset body/fc/kernel: got a dataset body; give one of the two "
            "another name");
  Hdf5Group groups{.datasets = {ramp("body", {3}, 3)}};
  groups.groups.push_back({.name = "body/fc"});
  EXPECT_EQ(problem(groups),
            "a dataset of HDF5 holds no others: group body/fc: got a dataset body; give one of the two another "
            "name");
  Hdf5Group nested;
  nested.groups = {{.name = "body/fc"}, {.name = "body"}};
  EXPECT_EQ(problem(nested),
            "a name is there twice in an HDF5 file: group body: got a group body; give one of the two another name");
  Hdf5Group fine;
  fine.datasets = {ramp("body/fc", {2}, 2), ramp("body/fcs", {2}, 2)};
  EXPECT_NO_THROW(static_cast<void>(encode_hdf5(fine)));
}

}  // namespace
}  // namespace trainyard::formats::hdf5_test
