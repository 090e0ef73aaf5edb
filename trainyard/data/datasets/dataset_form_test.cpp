// One small data set in each form that a directory may have, and what is said of directories that hold none.
#include "trainyard/data/datasets/dataset_form.h"

#include <cstdint>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/webdataset_label.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::dataset_form_test {
namespace {

using core::ErrorCode, ::testing::ElementsAre, ::testing::HasSubstr;

std::string jpeg(uint8_t value) {
  const std::vector<std::byte> bytes = encode_jpeg(flat_image(8, 8, value));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class DatasetForm : public DatasetFolderTest {
 protected:
  void write_records(const std::string& name, const std::vector<int64_t>& labels) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    formats::TfRecordWriter writer(files_.open_write(temp_.file(name)));
    for (const int64_t label : labels) {
      formats::ExampleBuilder example;
      example.add_bytes(formats::kImageEncoded, jpeg(static_cast<uint8_t>(label)));
      example.add_int64(formats::kImageClassLabel, label);
      writer.write(example.build());
    }
    writer.close();
  }
  void write_index(const std::string& shard, const std::string& index) {
    write(index, formats::format_record_index(
                     formats::RecordIndex(formats::index_tfrecord(*files_.open_read(temp_.file(shard))))));
  }
  std::unique_ptr<Dataset> open(Subset subset = Subset::kTrain, const std::string& within = "",
                                const std::string& name = "imagenet") {
    return datasets().get(name)({.directory = within.empty() ? temp_.path() : temp_.file(within), .subset = subset});
  }
  std::string open_error(Subset subset = Subset::kTrain, const std::string& within = "",
                         ErrorCode code = ErrorCode::kNotFound) {
    return core::message_of([&] { open(subset, within); }, code);
  }
};

// The order is torchvision's: tools/golden/image_folder.py.
TEST_F(DatasetForm, ClassFoldersInTheOrderOfImageFolder) {
  for (const char* file : {"b/2.jpg", "b/10.JPG", "b/1.png", "b/notes.txt", "a/x/1.jpg", "a/x-y/1.jpg", "a/0.jpeg",
                           "a/z.jpg", "B/1.jpg", "\xc3\xa9/1.jpg", "b/.hidden.jpg", "b/1.jpg.txt", "b/x.jpg/1.jpg"}) {
    write(fmt::format("train/{}", file), file);
  }
  const auto dataset = open();
  EXPECT_THAT(dataset->label_names(), ElementsAre("B", "a", "b", "\xc3\xa9"));
  EXPECT_EQ(dataset->label_count(), 4);
  EXPECT_EQ(dataset->first_label(), 0);
  std::vector<std::string> order;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const Record record = dataset->read(i).value();
    const std::string name(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size());
    EXPECT_EQ(record.where, temp_.file("train/" + name));
    order.push_back(fmt::format("{} {}", record.label, name));
  }
  EXPECT_THAT(order,
              ElementsAre("0 B/1.jpg", "1 a/0.jpeg", "1 a/z.jpg", "1 a/x/1.jpg", "1 a/x-y/1.jpg", "2 b/.hidden.jpg",
                          "2 b/1.png", "2 b/10.JPG", "2 b/2.jpg", "2 b/x.jpg/1.jpg", "3 \xc3\xa9/1.jpg"));
}

TEST_F(DatasetForm, ClassFoldersOfOneSubsetOrOfNone) {
  write("cats/1.jpg", jpeg(1));
  write("dogs/1.jpg", jpeg(2));
  files_.make_directories(temp_.file("empty"));
  EXPECT_THAT(labels(*open()), ElementsAre(0, 1 + 0));
  EXPECT_THAT(open_error(Subset::kValidation), HasSubstr("no class has two images"));
  EXPECT_EQ(open()->label_count(), 3) << "a class without an image keeps its label";
  core::TempDir other;
  files_.make_directories(other.file("train/cats"));
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")({.directory = other.path()}); }, ErrorCode::kNotFound),
              HasSubstr("class folders hold no images"));
  // With a folder for training only, it is not silently evaluated on.
  files_.write_file_atomically(other.file("train/cats/1.jpg"), jpeg(1));
  EXPECT_THAT(
      core::message_of([&] { datasets().get("imagenet")({.directory = other.path(), .subset = Subset::kValidation}); },
                       ErrorCode::kNotFound),
      HasSubstr("got 0 files and 1 folder (train)"));
}

TEST_F(DatasetForm, LinksThatLeadNowhereArePassedOver) {
  write("train/cats/1.jpg", jpeg(1));
  for (const char* link : {"dangling", "train/dangling", "train/cats/dangling"}) {
    std::filesystem::create_symlink("nowhere", temp_.file(link));
  }
  EXPECT_THAT(open()->label_names(), ElementsAre("cats"));
  EXPECT_EQ(open()->size(), 1);
  EXPECT_THAT(labels(*open(Subset::kTrain, "train")), ElementsAre(0));
  EXPECT_THAT(open_error(Subset::kValidation), HasSubstr("got 1 file (dangling) and 1 folder (train)"));
}

TEST_F(DatasetForm, ClassesWithoutAnImageAreNamed) {
  write("train/cats/1.jpg", jpeg(1));
  for (int i = 0; i < 7; ++i) files_.make_directories(temp_.file(fmt::format("train/empty {}", i)));
  ::testing::internal::CaptureStderr();
  open();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("7 of 8 classes have no image: 'empty 0', 'empty 1', 'empty 2', 'empty 3', 'empty 4', ... (7 in all)"));
}

// A set without a subset is told from one of which a file has gone.
TEST_F(DatasetForm, OnlyAMissingSubsetIsNoSuchSubset) {
  write_records("some/train-00000-of-00001", {1, 2});
  EXPECT_THROW(open(Subset::kValidation, "some"), NoSuchSubset);
  EXPECT_THROW(open(Subset::kTrain, "nowhere/train-*.tar"), NoSuchSubset);
  write("batches/test_batch.bin", std::string(3073, '\0'));
  EXPECT_THROW(open(Subset::kTrain, "batches", "cifar10"), NoSuchSubset);
  write("batches/data_batch_2.bin", std::string(3073, '\0'));
  std::filesystem::create_symlink("nowhere", temp_.file("some/validation-00000-of-00001"));
  for (const auto& [subset, within, name] :
       std::vector<std::tuple<Subset, std::string, std::string>>{{Subset::kValidation, "some", "imagenet"},
                                                                 {Subset::kTrain, "batches", "cifar10"},
                                                                 {Subset::kTrain, "nowhere", "imagenet"}}) {
    try {
      open(subset, within, name);
      ADD_FAILURE() << within;
    } catch (const NoSuchSubset& error) {
      ADD_FAILURE() << error.what();
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
    }
  }
}

TEST_F(DatasetForm, WebDatasetGroupsFilesByKey) {
  write_tar("imagenet-train-000001.tar", {{"c.jpeg", jpeg(30)}, {"c.cls", "7\n"}});
  write_tar("imagenet-train-000000.tar", {{"__readme__", "nothing"},
                                          {"a/0.1.jpg", jpeg(10)},
                                          {"a/0.1.cls", "3"},
                                          {"a/0.seg.png", "not read"},
                                          {"dir.with.dots/x.PNG", "\x89PNG"},
                                          {"dir.with.dots/x.json", R"({"label": 999, "text": "x"})"},
                                          {"y.txt", "no sample"},
                                          {"z.json", R"({"label": 4})"},
                                          {"z.jpg", jpeg(20)},
                                          {"z.png", "a mask"},
                                          {"z.cls", "5"}});
  write_tar("imagenet-val-000000.tar", {{"v.jpg", jpeg(40)}, {"v.cls", "0"}});
  const auto train = open();
  // "a/0.1.jpg" has the key "a/0" and the extension "1.jpg": as in webdataset, no image.
  EXPECT_THAT(labels(*train), ElementsAre(999, 5, 7));
  EXPECT_EQ(train->read(1).value().bytes.size(), jpeg(20).size()) << "the first image of a sample";
  EXPECT_EQ(train->label_count(), 1000);
  EXPECT_THAT(train->read(1).value().where, HasSubstr("imagenet-train-000000.tar at offset "));
  EXPECT_THAT(labels(*open(Subset::kValidation)), ElementsAre(0));
}

// As `tar --concatenate` joins archives whose files are sorted by their names.
TEST_F(DatasetForm, WebDatasetSamplesOfOneKeyKeepTheirLabels) {
  write_tar("train.tar", {{"0.cls", "1"},
                          {"0.jpg", jpeg(1)},
                          {"0.cls", "2"},
                          {"0.jpg", jpeg(2)},
                          {"1.json", R"({"label": 3})"},
                          {"1.png", "x"},
                          {"1.json", R"({"label": 4})"},
                          {"1.png", "y"}});
  EXPECT_THAT(labels(*open()), ElementsAre(1, 2, 3, 4));
}

TEST_F(DatasetForm, WebDatasetLabelsAreTheSameNumbersInBothFiles) {
  for (const int64_t number : {std::numeric_limits<int64_t>::max(), (int64_t{1} << 62) + 1, int64_t{-1}}) {
    EXPECT_EQ(parse_cls_label(std::to_string(number)).value().number, number);
    EXPECT_EQ(parse_json_label(json_label(number, "cat")).value().number, number);
  }
  EXPECT_FALSE(parse_cls_label("9223372036854775808").ok());
  EXPECT_FALSE(parse_json_label("{\"label\":9223372036854775808}").ok());
}

TEST_F(DatasetForm, WebDatasetSamplesThatAreIncompleteOrWrongAreBad) {
  write_tar("train.tar", {{"0.jpg", jpeg(1)},
                          {"0.cls", "1"},
                          {"a.jpg", jpeg(1)},
                          {"b.cls", "1"},
                          {"c.jpg", jpeg(1)},
                          {"c.cls", "one"},
                          {"d.jpg", jpeg(1)},
                          {"d.cls", "1000"},
                          {"e.jpg", jpeg(1)},
                          {"e.json", "{\"label\": 1.5}"},
                          {"f.jpg", jpeg(1)},
                          {"f.json", "[[[["}});
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 7);
  const char* problems[] = {"sample is incomplete",  "sample is incomplete",          "label is no number",
                            "label is out of range", "JSON of a sample has no label", "JSON of a sample has no label"};
  for (int64_t i = 0; i < 6; ++i) {
    const auto record = dataset->read(i + 1);
    ASSERT_FALSE(record.ok());
    EXPECT_EQ(record.error().detail().problem, problems[i]);
    EXPECT_THAT(record.error().detail().where, HasSubstr("train.tar at offset "));
  }
}

TEST_F(DatasetForm, WebDatasetSamplesAreNamedByThePartThatTheyHave) {
  write_tar("train.tar", {{"0.jpg", jpeg(1)}, {"0.cls", "1"}, {"a.cls", "1"}, {"b.json", R"({"label": 2})"}});
  const std::vector<formats::TarMember> members = formats::index_tar(*files_.open_read(temp_.file("train.tar")));
  const auto place = [&](size_t member) {
    return fmt::format("{} at offset {}", temp_.file("train.tar"), members.at(member).offset);
  };
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->read(0).value().where, place(0));
  EXPECT_EQ(dataset->read(1).error().detail().where, place(2));
  EXPECT_EQ(dataset->read(2).error().detail().where, place(3));
}

TEST_F(DatasetForm, WebDatasetLabelsHaveAtMostAMebibyte) {
  const std::string longest = "7" + std::string((size_t{1} << 20) - 1, ' ');
  write_tar("train.tar", {{"0.jpg", jpeg(1)},
                          {"0.cls", "1"},
                          {"a.jpg", jpeg(1)},
                          {"a.cls", longest},
                          {"b.jpg", jpeg(1)},
                          {"b.cls", longest + " "}});
  const auto dataset = open();
  EXPECT_EQ(dataset->read(1).value().label, 7);
  const core::Error error = dataset->read(2).error();
  EXPECT_EQ(error.detail().problem, "label is too long");
  EXPECT_EQ(error.detail().actual, "1048577 bytes");
}

TEST_F(DatasetForm, ShardsInFoldersOfTheirSubset) {
  write_records("train/train-00000-of-00001", {1, 2});
  write_tar("val/000.tar", {{"v.jpg", jpeg(40)}, {"v.cls", "0"}});
  EXPECT_THAT(labels(*open()), ElementsAre(1, 2));
  EXPECT_EQ(open()->first_label(), 1);
  EXPECT_THAT(labels(*open(Subset::kValidation)), ElementsAre(0));
  // The folder itself has one subset, whose word the shard's name lacks.
  for (const char* within : {"val", "val/", "train/../val"}) {
    EXPECT_THAT(labels(*open(Subset::kValidation, within)), ElementsAre(0)) << within;
    EXPECT_THROW(open(Subset::kTrain, within), NoSuchSubset) << within;
  }
  // A word in the shard's own name says more, and without a folder train the name of the folder says nothing.
  write_tar("val/train.tar", {{"t.jpg", jpeg(50)}, {"t.cls", "7"}});
  EXPECT_THAT(labels(*open(Subset::kTrain, "val")), ElementsAre(7));
  write_tar("alone/val/000.tar", {{"v.jpg", jpeg(40)}, {"v.cls", "5"}});
  EXPECT_THAT(labels(*open(Subset::kTrain, "alone/val")), ElementsAre(5));
}

// make_new_directory() leaves these where it is killed while it moves what it has written.
TEST_F(DatasetForm, ADirectoryThatIsNotWrittenToItsEndIsRefused) {
  const auto expect_refused = [&](const std::string& within, const std::string& name) {
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      EXPECT_THAT(core::message_of([&] { open(subset, within, name); }, ErrorCode::kCorruptData),
                  HasSubstr("directory is not written to its end: " + temp_.file(within)))
          << name;
    }
  };
  write_records("records/train-00000-of-00001", {1, 2});
  EXPECT_EQ(open(Subset::kTrain, "records")->size(), 2);
  write_records("records/.unfinished/validation-00000-of-00001", {3});
  expect_refused("records", "imagenet");
  expect_refused("records", "shapes");
  write("batches/test_batch.bin", std::string(3073, '\0'));
  write("batches/.unfinished/data_batch_1.bin", std::string(3073, '\0'));
  expect_refused("batches", "cifar10");
  write("coco/annotations/instances_train2017.json", "{}");
  write("coco/.unfinished/train2017/1.jpg", jpeg(1));
  expect_refused("coco", "coco");
}

TEST_F(DatasetForm, ShardsNamedByGlobsAndBraces) {
  for (int i = 8; i < 12; ++i) write_records(fmt::format("train-{:05}-of-00012", i), {i});
  write_records("validation-00000-of-00001", {900});
  EXPECT_THAT(labels(*open(Subset::kTrain, "train-0001?-of-*")), ElementsAre(10, 11));
  EXPECT_THAT(labels(*open(Subset::kTrain, "train-{00009..00011}-of-00012")), ElementsAre(9, 10, 11));
  EXPECT_THAT(labels(*open(Subset::kTrain, "train-00009-of-00012")), ElementsAre(9));
  EXPECT_THAT(labels(*open(Subset::kTrain, "*-of-*")), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(labels(*open(Subset::kValidation, "*-of-*")), ElementsAre(900));
  EXPECT_THAT(open_error(Subset::kTrain, "train-{00011..00013}-of-00012"), HasSubstr("train-00012-of-00012"));
  EXPECT_THAT(open_error(Subset::kTrain, "test*.tar"), HasSubstr("Found no files in --data_dir matching"));
}

TEST_F(DatasetForm, ShardsOfTwoKindsAreRefused) {
  write_records("x-train-00000-of-00001", {1});
  write_tar("x-train-0.tar", {{"a.jpg", jpeg(1)}, {"a.cls", "1"}});
  write_tar("x-train-1.tar", {{"b.jpg", jpeg(1)}, {"b.cls", "2"}});
  EXPECT_THAT(open_error(Subset::kTrain, "x-*", ErrorCode::kInvalidArgument),
              ::testing::AllOf(HasSubstr("shards of different kinds"), HasSubstr("got 2 of 3")));
  EXPECT_THAT(labels(*open(Subset::kTrain, "x-*.tar")), ElementsAre(1, 2));
}

TEST_F(DatasetForm, IndexFilesThatAPatternNamesAreNoShards) {
  write_records("train-00000-of-00001", {1, 2});
  write_index("train-00000-of-00001", "train-00000-of-00001.idx");
  EXPECT_THAT(labels(*open(Subset::kTrain, "train-*")), ElementsAre(1, 2));
  EXPECT_THAT(labels(*open()), ElementsAre(1, 2));
}

TEST(ExpandBraces, AsShellsDo) {
  EXPECT_THAT(expand_braces("a"), ElementsAre("a"));
  EXPECT_THAT(expand_braces("{a,b}-{08..10}.tar"),
              ElementsAre("a-08.tar", "a-09.tar", "a-10.tar", "b-08.tar", "b-09.tar", "b-10.tar"));
  EXPECT_THAT(expand_braces("{18446744073709551614..18446744073709551615}"),
              ElementsAre("18446744073709551614", "18446744073709551615"));
  for (const char* bad : {"{a", "{3..1}", "{a..b}", "{0..9999999}", "{0..999999}{0..9}", "{..}"}) {
    EXPECT_EQ(core::code_of([&] { expand_braces(bad); }), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST_F(DatasetForm, SaysWhatTheDirectoryHolds) {
  write("a.txt", "");
  write("some/b.txt", "");
  const std::string error = open_error();
  EXPECT_THAT(error, HasSubstr("Found no files in --data_dir matching: " + temp_.file("train-*-of-*")));
  EXPECT_THAT(error, HasSubstr("got 1 file (a.txt) and 1 folder (some)"));
  EXPECT_THAT(error, HasSubstr("WebDataset shards train*.tar, or a folder train of class folders"));
  EXPECT_THAT(open_error(Subset::kValidation, "none*"),
              HasSubstr("expected shards of the validation images, got none"));
}

TEST_F(DatasetForm, NamesTheFirstFiveFilesAndFolders) {
  for (int i = 1; i <= 5; ++i) files_.make_directories(temp_.file(fmt::format("d{}", i)));
  for (int i = 1; i <= 6; ++i) write(fmt::format("f{}.txt", i));
  EXPECT_THAT(open_error(), HasSubstr("got 6 files (f1.txt, f2.txt, f3.txt, f4.txt, f5.txt, ...) and 5 folders "
                                      "(d1, d2, d3, d4, d5);"));
}

TEST_F(DatasetForm, CifarSaysWhichBatchesAreMissing) {
  write("training/data_batch_1.bin", std::string(3073, '\0'));
  write("test/test_batch.bin", std::string(3073, '\0'));
  const auto missing = [&](Subset subset, const std::string& within) {
    return core::message_of([&] { open(subset, within, "cifar10"); }, ErrorCode::kNotFound);
  };
  EXPECT_THAT(missing(Subset::kValidation, "training"), HasSubstr("expected test_batch;"));
  EXPECT_THAT(missing(Subset::kTrain, "test"), HasSubstr("expected data_batch_1 to 5;"));
}

TEST_F(DatasetForm, IndexFilesGiveTheSameRecords) {
  write_records("train-00000-of-00003", {1, 2, 3});
  write_records("train-00001-of-00003", {});
  write_records("train-00002-of-00003", {4, 5});
  const std::vector<int64_t> expected = labels(*open());
  EXPECT_THAT(expected, ElementsAre(1, 2, 3, 4, 5));
  write_index("train-00000-of-00003", "idx/train-00000-of-00003.idx");
  EXPECT_EQ(labels(*open()), expected);
  write("train-00000-of-00003.idx", "not an index\n");
  EXPECT_EQ(labels(*open()), expected) << "the folder idx comes first";
  write_index("train-00002-of-00003", "train-00002-of-00003.idx");
  EXPECT_EQ(labels(*open()), expected);
  write("elsewhere/train-00000-of-00003.idx", "not an index\n");
  EXPECT_EQ(labels(*open()), expected);
  const DatasetOptions elsewhere{.directory = temp_.path(), .index_directory = temp_.file("elsewhere")};
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")(elsewhere); }, ErrorCode::kCorruptData),
              HasSubstr("elsewhere/train-00000-of-00003.idx: line 1"));
}

TEST_F(DatasetForm, AFolderOfIndexFilesThatWouldNotBeUsedIsTold) {
  write_records("train-00000-of-00002", {1, 2, 3});
  write_records("train-00001-of-00002", {4});
  DatasetOptions options{.directory = temp_.path(), .index_directory = temp_.file("no/where")};
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")(options); }, ErrorCode::kNotFound),
              HasSubstr("no such folder of index files"));
  write_index("train-00001-of-00002", "some/train-00001-of-00002.idx");
  options.index_directory = temp_.file("some");
  testing::internal::CaptureStderr();
  EXPECT_EQ(labels(*datasets().get("imagenet")(options)), labels(*open()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 of 2 train shards have no index file in"));
  write_index("train-00000-of-00002", "some/train-00000-of-00002.idx");
  testing::internal::CaptureStderr();
  datasets().get("imagenet")(options);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");

  write("folders/train/cat/a.png", "no image needed");
  options.directory = temp_.file("folders");
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")(options); }, ErrorCode::kInvalidArgument),
              HasSubstr("only TFRecords have index files"));
}

TEST_F(DatasetForm, AStaleIndexIsRefused) {
  write_records("train-00000-of-00001", {1, 2, 3});
  write_index("train-00000-of-00001", "idx/train-00000-of-00001.idx");
  const std::string shard = temp_.file("train-00000-of-00001");
  const uint64_t indexed = files_.info(shard).size;
  write_records("train-00000-of-00001", {1, 2, 3, 4});
  const std::string sizes =
      fmt::format("expected {} bytes, as {} has, got {};", files_.info(shard).size, shard, indexed);
  EXPECT_THAT(open_error(Subset::kTrain, "", ErrorCode::kCorruptData),
              ::testing::AllOf(HasSubstr("index file is not of this shard"), HasSubstr("trainyard data index"),
                               HasSubstr(sizes)));
  // A file of the same size, but with the records elsewhere.
  const std::string index = files_.read_file(temp_.file("idx/train-00000-of-00001.idx"));
  const uint64_t size = files_.info(temp_.file("train-00000-of-00001")).size;
  write("idx/train-00000-of-00001.idx", fmt::format("0 100\n100 {}\n", size - 100));
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_THAT(core::message_of([&] { dataset->read(0); }, ErrorCode::kCorruptData),
              HasSubstr("index file is not of this shard"))
      << "thrown: no bad sample, which could be skipped";
}

TEST_F(DatasetForm, WhatWasFoundIsKeptForTheNextRun) {
  const core::EnvironmentVariable cache("XDG_CACHE_HOME", temp_.file("cache"));
  const std::string shard = "train-00000-of-00001";
  write_records(shard, std::vector<int64_t>(100, 7));
  EXPECT_EQ(open()->size(), 100);
  const std::string folder = temp_.file("cache/trainyard/record_indexes");
  ASSERT_EQ(files_.list(folder).size(), 1u);
  // The next run believes it: here that one record reaches to the end of the shard.
  const std::string kept = core::join_path(folder, files_.list(folder).front());
  const uint64_t size = files_.info(temp_.file(shard)).size;
  files_.write_file_atomically(kept, fmt::format("0 {}\n", size));
  EXPECT_EQ(open()->size(), 1);
  EXPECT_EQ(core::code_of([&] { open()->read(0); }), ErrorCode::kCorruptData) << "but not blindly";
  files_.write_file_atomically(kept, "no index");
  EXPECT_EQ(open()->size(), 100) << "a damaged one is made again";
  EXPECT_EQ(files_.read_file(kept).substr(0, 2), "0 ");
  write_index(shard, "idx/" + shard + ".idx");
  EXPECT_EQ(open()->size(), 100) << "an index file comes first";
  files_.remove_file(temp_.file("idx/" + shard + ".idx"));
  write_records(shard, std::vector<int64_t>(101, 7));
  EXPECT_EQ(open()->size(), 101) << "a shard that was written again is looked at again";
}

TEST_F(DatasetForm, FewRecordsAreNotKeptNorIsADiskNeeded) {
  const core::EnvironmentVariable cache("XDG_CACHE_HOME", temp_.file("cache"));
  write_records("train-00000-of-00001", {1, 2, 3});
  EXPECT_EQ(open()->size(), 3);
  EXPECT_FALSE(files_.exists(temp_.file("cache")));
  write("cache", "a file where the folder should be");
  write_records("train-00000-of-00001", std::vector<int64_t>(100, 7));
  EXPECT_EQ(open()->size(), 100);
  cache.set(std::nullopt);
  const core::EnvironmentVariable home("HOME", std::nullopt);
  EXPECT_EQ(open()->size(), 100);
}

TEST_F(DatasetForm, CifarAndShapesInOtherForms) {
  write("train/airplane/1.jpg", jpeg(1));
  write("train/cat/1.jpg", jpeg(2));
  EXPECT_THAT(labels(*open(Subset::kTrain, "", "cifar10")), ElementsAre(0, 1));
  write_tar("val-0.tar", {{"v.jpg", jpeg(40)}, {"v.cls", "9"}});
  EXPECT_THAT(labels(*open(Subset::kValidation, "", "cifar10")), ElementsAre(9));
}

TEST_F(DatasetForm, WebDatasetSaysWhatASampleLacks) {
  write_tar("train.tar", {{"0.jpg", jpeg(1)},
                          {"0.cls", "999"},
                          {"a.jpg", jpeg(1)},
                          {"b.cls", "1"},
                          {"c.jpg", jpeg(1)},
                          {"c.cls", "1000"},
                          {"d.jpg", jpeg(1)},
                          {"d.cls", "-1"}});
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 5);
  EXPECT_EQ(dataset->read(0).value().label, 999);
  const auto said = [&](int64_t index) { return core::ErrorDetail(dataset->read(index).error().detail()); };
  EXPECT_EQ(said(1).actual, "no label");
  EXPECT_EQ(said(2).actual, "no image");
  EXPECT_EQ(said(3).expected, "[0, 1000)");
  EXPECT_EQ(said(3).actual, "1000");
  EXPECT_EQ(said(4).actual, "-1");
  write_tar("none/train.tar", {{"__readme__", "nothing"}});
  EXPECT_THROW(open(Subset::kTrain, "none"), NoSuchSubset);
  EXPECT_THAT(open_error(Subset::kTrain, "none"), HasSubstr("hold no samples: 1 shards in " + temp_.file("none")));
}

TEST(WebLabels, AreNumbersOrNames) {
  const auto text_of = [](core::Result<WebLabel> label) -> std::string {
    if (!label.ok()) return label.error().detail().problem + ", " + label.error().detail().actual;
    const WebLabel& of = label.value();
    return (of.is_number ? fmt::format("number {} ", of.number) : "name ") + of.name;
  };
  const auto cls = [&](const std::string& text) { return text_of(parse_cls_label(text)); };
  EXPECT_EQ(cls(" +7\r\n"), "number 7 ");
  EXPECT_EQ(cls("-3"), "number -3 ");
  EXPECT_EQ(cls("+"), "name +");
  EXPECT_EQ(cls("3a"), "name 3a");
  EXPECT_EQ(cls("\ta b\n"), "name a b");
  EXPECT_EQ(cls(" \t\n"), "label is empty, ");
  EXPECT_EQ(cls("9223372036854775808"), "label is out of range, 9223372036854775808");
  const auto json = [&](const std::string& text) { return text_of(parse_json_label(text)); };
  EXPECT_EQ(json(R"({"class": 4, "label": 3})"), "number 3 ");
  EXPECT_EQ(json(R"({"class": "12", "classname": "cat"})"), "number 12 cat");
  EXPECT_EQ(json(R"({"label": " dog ", "classname": "cat"})"), "name dog");
  EXPECT_EQ(json(R"({"class_name": "b", "classname": "a"})"), "name a");
  EXPECT_EQ(json(R"({"class_name": "b"})"), "name b");
  const std::string none = "JSON of a sample has no label, ";
  EXPECT_EQ(json(R"({"label": 1.5})"), none + "a number as label");
  EXPECT_EQ(json(R"({"class": null})"), none + "a null as class");
  EXPECT_EQ(json("[1]"), none + "something else");
  EXPECT_EQ(json(R"({"classname": 3})"), none + "neither");
  EXPECT_EQ(json_label(3, "cat"), R"({"label":3,"class_name":"cat"})");
  EXPECT_EQ(json_label(3, "\xff"), "") << "no UTF-8";
}

// The first, the middle and the last one, each of which notices other records than the others do.
TEST_F(DatasetForm, ThreeRecordsOfAnIndexAreLookedAt) {
  const std::string shard = "train-00000-of-00001";
  write_records(shard, {1, 2, 3, 4, 5});
  std::vector<uint64_t> begins;
  for (const formats::RecordSpan& span : formats::index_tfrecord(*files_.open_read(temp_.file(shard)))) {
    begins.push_back(span.offset);
  }
  ASSERT_EQ(begins.size(), 5U);
  begins.push_back(files_.info(temp_.file(shard)).size);
  for (const size_t moved : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4}}) {
    std::vector<uint64_t> said = begins;
    if (moved > 0) ++said[moved];
    std::string index;
    for (size_t i = 0; i < 5; ++i) index += fmt::format("{} {}\n", said[i], said[i + 1] - said[i]);
    write("idx/" + shard + ".idx", index);
    const auto dataset = open();
    EXPECT_EQ(dataset->size(), 5);
    EXPECT_EQ(core::error_of([&] { dataset->read(0); }).has_value(), moved > 0) << moved;
  }
}

TEST_F(DatasetForm, AnIndexThatChangesAfterTheStartIsRefused) {
  const std::string shard = "train-00000-of-00001";
  write_records(shard, {1, 2, 3});
  write_index(shard, "idx/" + shard + ".idx");
  const auto dataset = open();
  const uint64_t size = files_.info(temp_.file(shard)).size;
  write("idx/" + shard + ".idx", fmt::format("0 100\n100 {}\n", size - 100));
  EXPECT_THAT(core::message_of([&] { dataset->read(0); }, ErrorCode::kCorruptData),
              HasSubstr("expected 3 records, as at the start, got 2;"));
}

// The list in the folder around is of something else, here without a name.
TEST_F(DatasetForm, ClassFoldersReadNoListAroundThem) {
  write("classnames.txt", "\n");
  write("photos/cats/1.jpg", jpeg(1));
  write("photos/dogs/1.jpg", jpeg(2));
  EXPECT_THAT(open(Subset::kTrain, "photos")->label_names(), ElementsAre("cats", "dogs"));
}

TEST_F(DatasetForm, AnIndexIsKeptFromAHundredRecordsOn) {
  const core::EnvironmentVariable cache("XDG_CACHE_HOME", temp_.file("cache"));
  write_records("train-00000-of-00001", std::vector<int64_t>(99, 7));
  EXPECT_EQ(open()->size(), 99);
  EXPECT_FALSE(files_.exists(temp_.file("cache")));
  write_records("train-00000-of-00001", std::vector<int64_t>(100, 7));
  EXPECT_EQ(open()->size(), 100);
  EXPECT_TRUE(files_.exists(temp_.file("cache")));
}

TEST_F(DatasetForm, ClassFoldersNestThirtyTwoLevelsDeep) {
  std::string folder = "train/cats";
  for (int level = 1; level <= 32; ++level) folder += fmt::format("/{}", level);
  write(folder + "/1.jpg", jpeg(1));
  EXPECT_EQ(open()->size(), 1);
  write(folder + "/33/1.jpg", jpeg(1));
  EXPECT_THAT(
      open_error(Subset::kTrain, "", ErrorCode::kInvalidArgument),
      HasSubstr("folders of images nest too deep: " + temp_.file(folder + "/33") + ": expected at most 32 levels"));
}

}  // namespace
}  // namespace trainyard::data::dataset_form_test
