#include "trainyard/formats/records/cifar.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::cifar_test {
namespace {

using std::string_literals::operator""s;

core::Error error_of(std::string_view content) {
  try {
    parse_cifar10_batch(content);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    return error;
  }
  ADD_FAILURE() << "read it";
  return {core::ErrorCode::kInternal, "none"};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos);
  return text.replace(place, from.size(), to);
}

// The formula of tools/golden/make_cifar_pickle.py.
TEST(Cifar, ReadsTheBatchesOfEveryPythonAndTheBinaryOne) {
  for (const char* name :
       {"cifar_python2_protocol2.pickle", "cifar_python3_protocol2.pickle", "cifar_python3_protocol3.pickle",
        "cifar_python3_protocol4.pickle", "cifar_python3_protocol5.pickle", "cifar_binary.bin"}) {
    const CifarBatch batch = parse_cifar10_batch(testdata(name));
    ASSERT_EQ(batch.size(), 2U) << name;
    EXPECT_EQ(batch.labels, (std::vector<uint8_t>{3, 9})) << name;
    ASSERT_EQ(batch.pixels.size(), 2 * kCifarImageBytes);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < kCifarImageBytes; ++j) ASSERT_EQ(batch.image(i)[j], (7 * i + j / 16) % 256) << name;
    }
  }
}

TEST(Cifar, FindsTheFilesOfASplit) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const auto find = [&](CifarSplit split) { return find_cifar10_batches(files, directory.path(), split); };
  for (int i = 1; i <= 4; ++i) files.write_file_atomically(directory.file(fmt::format("data_batch_{}", i)), "x");
  files.write_file_atomically(directory.file("test_batch.bin"), "x");
  EXPECT_EQ(find(CifarSplit::kTest), std::vector<std::string>{directory.file("test_batch.bin")});
  try {
    find(CifarSplit::kTraining);
    FAIL() << "found five batches";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kNotFound);
    EXPECT_EQ(error.detail().expected, "data_batch_5 or data_batch_5.bin");
  }
  files.write_file_atomically(directory.file("data_batch_5"), "x");
  std::vector<std::string> paths;
  for (int i = 1; i <= 5; ++i) paths.push_back(directory.file(fmt::format("data_batch_{}", i)));
  EXPECT_EQ(find(CifarSplit::kTraining), paths);
  files.write_file_atomically(directory.file("test_batch"), "x");
  EXPECT_EQ(find(CifarSplit::kTest), std::vector<std::string>{directory.file("test_batch")}) << "not the binary one";
}

TEST(Cifar, BinaryBatchesAreChecked) {
  std::string content = testdata("cifar_binary.bin");
  EXPECT_EQ(error_of(content.substr(1)).detail().expected, "a multiple of 3073 bytes");
  error_of("");
  content[3073] = 10;
  const core::Error error = error_of(content);
  EXPECT_EQ(error.detail().problem, "label of image 1 is out of range");
  EXPECT_NE(error.detail().where.find("offset 3073"), std::string::npos);
}

TEST(Cifar, ErrorsNameTheFile) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(directory.file("good"), testdata("cifar_binary.bin"));
  EXPECT_EQ(read_cifar10_batch(files, directory.file("good")).size(), 2U);
  files.write_file_atomically(directory.file("bad"),
                              "\x80\x02"
                              "i"s);
  try {
    read_cifar10_batch(files, directory.file("bad"));
    FAIL() << "read it";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.detail().where, directory.file("bad") + ": offset 2");
  }
}

TEST(Cifar, PicklesOfOtherThingsAreRefused) {
  const std::string good = testdata("cifar_python3_protocol3.pickle");
  EXPECT_EQ(error_of(replaced(good, "labels", "lebals")).detail().actual, "no such entry");
  EXPECT_EQ(error_of(replaced(good, "C\4data"s, "C\4deta"s)).detail().actual, "no such entry");
  EXPECT_EQ(error_of(replaced(good, "K\3K\x09"s, "K\3K\x0a"s)).detail().actual, "10");
  EXPECT_EQ(error_of(replaced(good, "K\3K\x09"s, "K\3N"s)).detail().actual, "-1");
  // Three labels for two images; one image of twice the size.
  EXPECT_EQ(error_of(replaced(good, "K\3K\x09"s, "K\3K\3K\x09"s)).detail().actual, "[2, 3072]");
  EXPECT_EQ(error_of(replaced(good, "K\2M\0\x0c"s, "K\1M\0\x18"s)).detail().actual, "[1, 6144]");
  EXPECT_EQ(error_of("\x80\x02N."s).detail().actual, "no such entry");
  EXPECT_NE(std::string(error_of("\x80\x02"
                                 "cos\nsystem\n."s)
                            .what())
                .find("os.system"),
            std::string::npos);
}

TEST(Cifar, TruncatedFilesAreCorrupt) {
  for (const char* name : {"cifar_python2_protocol2.pickle", "cifar_python3_protocol4.pickle", "cifar_binary.bin"}) {
    const std::string good = testdata(name);
    for_each_truncation(good, [&](std::string_view part) {
      if (part.size() != 3073 || part[0] == '\x80') error_of(part);  // the first record of the binary batch is one too
    });
  }
}

TEST(Cifar, SaysWhatIsWrongAndWhatIsMeant) {
  const std::string remedy = "; use a batch file of CIFAR-10 as it is published";
  const auto said = [](std::string_view content) { return std::string(error_of(content).what()); };
  std::string binary = testdata("cifar_binary.bin");
  EXPECT_EQ(said(binary.substr(1)),
            "file is no binary batch of CIFAR-10: expected a multiple of 3073 bytes, got 6145" + remedy);
  EXPECT_EQ(said(""), "file is no binary batch of CIFAR-10: expected a multiple of 3073 bytes, got 0" + remedy);
  binary[3073] = 10;
  EXPECT_EQ(said(binary), "label of image 1 is out of range: offset 3073: expected 0 to 9, got 10" + remedy);
  const std::string good = testdata("cifar_python3_protocol3.pickle"), none = "pickle is no batch of CIFAR-10: ";
  EXPECT_EQ(said(replaced(good, "K\3K\x09"s, "K\3K\x0a"s)),
            "label of image 1 is out of range: entry 'labels': expected 0 to 9, got 10" + remedy);
  EXPECT_EQ(said(replaced(good, "labels", "lebals")),
            none + "entry 'labels': expected a list, got no such entry" + remedy);
  EXPECT_EQ(said(replaced(good, "C\4data"s, "C\4deta"s)),
            none + "entry 'data': expected an array, got no such entry" + remedy);
  EXPECT_EQ(said("\x80\x02}(U\4dataNu."), none + "entry 'data': expected an array, got another value" + remedy);
  EXPECT_EQ(said(replaced(good, "K\3K\x09"s, "K\3K\3K\x09"s)),
            none + "entry 'data': expected shape [3, 3072] for 3 labels, got [2, 3072]" + remedy);
  const core::TempDir directory;
  EXPECT_EQ(
      core::message_of([&] { find_cifar10_batches(core::local_file_system(), directory.path(), CifarSplit::kTest); },
                       core::ErrorCode::kNotFound),
      "CIFAR-10 batch is missing: " + directory.path() +
          ": expected test_batch or test_batch.bin, got neither; unpack cifar-10-python.tar.gz or "
          "cifar-10-binary.tar.gz there");
}

// The file is sparse: nothing of it is on the disk.
TEST(Cifar, FilesHaveAtMost256MiB) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(directory.file("large"), "x");
  std::filesystem::resize_file(directory.file("large"), (uint64_t{256} << 20) + 1);
  EXPECT_EQ(
      core::message_of([&] { read_cifar10_batch(files, directory.file("large")); }, core::ErrorCode::kCorruptData),
      "file is too large: " + directory.file("large") +
          ": expected at most 268435456 bytes, got 268435457 bytes; check that it is the right file");
}

}  // namespace
}  // namespace trainyard::formats::cifar_test
