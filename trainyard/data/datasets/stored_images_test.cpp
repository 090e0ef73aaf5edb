// Which files of a folder are read where several could be, and what is said of those that cannot.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::stored_images_test {
namespace {

using core::ErrorCode, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

class StoredImagesOf : public DatasetFolderTest {
 protected:
  std::string refusal(const DatasetOptions& options, ErrorCode code, const std::string& name = "imagenet") {
    return core::message_of([&] { datasets().get(name)(options); }, code);
  }
};

TEST_F(StoredImagesOf, ATableOfLabelsComesBeforeCifarsBatches) {
  write("photos/data_batch_1.bin", std::string(3073, '\0'));
  write("photos/a.jpg");
  write("labels.csv", "file,label\na.jpg,cat\n");
  const auto dataset = datasets().get("cifar10")(
      {.directory = temp_.file("photos"), .divide = false, .labels_csv = temp_.file("labels.csv")});
  EXPECT_EQ(dataset->size(), 1);
  EXPECT_THAT(dataset->label_names(), ElementsAre("cat"));
}

TEST_F(StoredImagesOf, CifarsBatchesHaveNoIndexFiles) {
  write("test_batch.bin", std::string(3073, '\0'));
  EXPECT_THAT(
      refusal({.directory = temp_.path(), .subset = Subset::kValidation, .index_directory = temp_.file("indexes")},
              ErrorCode::kInvalidArgument, "cifar10"),
      HasSubstr("only TFRecords have index files"));
}

// Each of the two says by itself that the other folders are no classes.
TEST_F(StoredImagesOf, AFolderOfOneSubsetIsNoClass) {
  for (const char* file : {"a/train/cat/1.jpg", "a/other/1.jpg", "a/other/2.jpg", "b/val/1.jpg", "b/cat/1.jpg"}) {
    write(file);
  }
  EXPECT_THAT(refusal({.directory = temp_.file("a"), .subset = Subset::kValidation}, ErrorCode::kNotFound),
              HasSubstr("Found no files in --data_dir matching"));
  EXPECT_THAT(refusal({.directory = temp_.file("b"), .subset = Subset::kTrain}, ErrorCode::kNotFound),
              HasSubstr("Found no files in --data_dir matching"));
}

TEST_F(StoredImagesOf, WhatIsNoFolderHasNoFoldersOfASubset) {
  write("file");
  EXPECT_THAT(subset_folders(files_, temp_.file("nowhere"), Subset::kTrain), IsEmpty());
  EXPECT_THAT(subset_folders(files_, temp_.file("file"), Subset::kTrain), IsEmpty());
}

TEST_F(StoredImagesOf, ADivisionThatIsNotRequiredNeedsNoTrainingImages) {
  for (int i = 0; i < 4; ++i) write(fmt::format("val/cat/{}.jpg", i));
  DatasetOptions options{
      .directory = temp_.path(), .subset = Subset::kValidation, .division = Division{.validation = 0.3}};
  EXPECT_EQ(datasets().get("imagenet")(options)->size(), 4);
  options.requires_division = true;
  EXPECT_THAT(refusal(options, ErrorCode::kNotFound), HasSubstr("Found no files in --data_dir matching"));
}

TEST_F(StoredImagesOf, NamesOfTheTrainingImagesAreTheirOwn) {
  write_tar("train.tar", {{"0.jpg", "x"}, {"0.cls", "cat"}, {"1.jpg", "x"}, {"1.cls", "ant"}});
  const KnownClasses known{.names = {"dog", "cat", "ant"}, .origin = "a checkpoint"};
  EXPECT_THAT(datasets().get("imagenet")({.directory = temp_.path(), .classes = known})->label_names(),
              ElementsAre("dog", "cat", "ant"));
  EXPECT_THAT(training_class_names("imagenet", {.directory = temp_.path(), .classes = known}),
              ElementsAre("ant", "cat"));
}

// The folder's own images can be read all the same.
TEST_F(StoredImagesOf, AFolderAroundThatCannotBeListedSaysNothing) {
  write("photos/train/cat/1.jpg");
  int listings = 0;
  for (int n = 1;; ++n) {
    core::FaultInjector faults;
    faults.fail_nth(n, core::Fault::kIoError);
    const auto files = core::make_file_system(faults);
    const auto error = core::error_of([&] {
      datasets().get("imagenet")({.directory = temp_.file("photos/train"), .files = files.get(), .divide = false});
    });
    if (!faults.reached()) break;
    ASSERT_LT(n, 1000);
    const std::string call = faults.log().at(static_cast<size_t>(n) - 1);
    if (!call.starts_with("list ") || !call.ends_with("/photos")) continue;
    EXPECT_FALSE(error.has_value()) << error->what();
    ++listings;
  }
  EXPECT_GT(listings, 0);
}

TEST_F(StoredImagesOf, RecordsAreFoundWithoutAnIndexWhereNoneShallBeUsed) {
  write_shapes({.train_count = 5, .validation_count = 1, .image_size = 16, .train_shards = 2}, temp_.file("shapes"));
  write("shapes/idx/train-00000-of-00002.idx", "not an index\n");
  EXPECT_THAT(labels(*datasets().get("shapes")({.directory = temp_.file("shapes"), .use_index = false})),
              ElementsAre(0, 1, 2, 3, 4));
}

// One that an earlier run kept is not the user's: where it is wrong, the records are found by reading them.
TEST_F(StoredImagesOf, AKeptIndexOfOtherPlacesIsNotUsed) {
  const core::EnvironmentVariable cache("XDG_CACHE_HOME", temp_.file("cache"));
  constexpr int64_t kRecords = 100;
  write_shapes({.train_count = kRecords, .validation_count = 1, .image_size = 16, .train_shards = 1},
               temp_.file("shapes"));
  const auto open = [&] { return datasets().get("shapes")({.directory = temp_.file("shapes")}); };
  EXPECT_EQ(open()->size(), kRecords);
  const std::string folder = temp_.file("cache/trainyard/record_indexes");
  ASSERT_EQ(files_.list(folder).size(), 1U);
  const std::string shard = temp_.file("shapes/train-00000-of-00001");
  std::vector<uint64_t> begins;
  for (const formats::RecordSpan& span : formats::index_tfrecord(*files_.open_read(shard))) {
    begins.push_back(span.offset);
  }
  ASSERT_EQ(begins.size(), size_t{kRecords});
  begins.push_back(files_.info(shard).size);
  ++begins[kRecords / 2];
  std::string index;
  for (size_t i = 0; i < size_t{kRecords}; ++i) index += fmt::format("{} {}\n", begins[i], begins[i + 1] - begins[i]);
  files_.write_file_atomically(core::join_path(folder, files_.list(folder).front()), index);
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), kRecords);
  for (const int64_t record : {int64_t{0}, kRecords / 2, kRecords - 1}) {
    EXPECT_EQ(dataset->read(record).value().label, shape_label(record));
  }
}

TEST_F(StoredImagesOf, FoldersThatAreSkippedAreNotCounted) {
  for (const char* folder : {"train/cat", "train/dog", "train/elk"}) files_.make_directories(temp_.file(folder));
  const KnownClasses known{.names = {"cat"}, .origin = "a checkpoint", .on_unknown = OnUnknownClass::kSkip};
  EXPECT_THAT(refusal({.directory = temp_.path(), .classes = known}, ErrorCode::kNotFound),
              HasSubstr("got none in 1 folders"));
}

}  // namespace
}  // namespace trainyard::data::stored_images_test
