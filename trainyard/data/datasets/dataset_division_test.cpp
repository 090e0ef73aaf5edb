#include "trainyard/data/datasets/dataset_division.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/formats/containers/tar.h"

namespace trainyard::data::dataset_division_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

class Division : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content = "image") {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), content);
  }
  void write_class(const std::string& folder, int images) {
    for (int i = 0; i < images; ++i) write(fmt::format("{}/{:04}.jpg", folder, i));
  }
  std::unique_ptr<Dataset> open(Subset subset, const std::string& within, bool divide = true) {
    return datasets().get("imagenet")({.directory = temp_.file(within), .subset = subset, .divide = divide});
  }
  // The files of a subset, below `within`.
  std::set<std::string> names(Subset subset, const std::string& within, bool divide = true) {
    const auto dataset = open(subset, within, divide);
    std::set<std::string> names;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const bool is_new = names.insert(dataset->read(i).value().where.substr(temp_.file(within).size() + 1)).second;
      EXPECT_TRUE(is_new) << "an image comes twice";
    }
    return names;
  }
  static std::map<std::string, int> by_class(const std::set<std::string>& names) {
    std::map<std::string, int> counts;
    for (const std::string& name : names) ++counts[name.substr(0, name.find('/'))];
    return counts;
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(Division, IsAFifthOfEachClassAndHasNoImageTwice) {
  write_class("photos/cat", 60);
  write_class("photos/dog", 10);
  write_class("photos/elk", 7);
  write_class("photos/fox", 2);
  write_class("photos/gnu", 1);
  const std::set<std::string> train = names(Subset::kTrain, "photos"), val = names(Subset::kValidation, "photos");
  EXPECT_EQ(by_class(val), (std::map<std::string, int>{{"cat", 12}, {"dog", 2}, {"elk", 1}, {"fox", 1}}));
  EXPECT_EQ(train.size() + val.size(), 80U);
  for (const std::string& name : val) EXPECT_FALSE(train.contains(name)) << name;
  // Not the first ones, which cameras number in the order of what they saw.
  EXPECT_NE(*std::next(val.begin(), 11), "cat/0011.jpg");
  EXPECT_EQ(open(Subset::kValidation, "photos")->label_names(), open(Subset::kTrain, "photos")->label_names());
}

TEST_F(Division, IsTheSameWhereverTheFolderIs) {
  write_class("photos/cat", 40);
  write("photos/cat/below/0001.jpg");
  const std::set<std::string> before = names(Subset::kValidation, "photos");
  std::filesystem::rename(temp_.file("photos"), temp_.file("moved"));
  EXPECT_EQ(names(Subset::kValidation, "moved"), before);
  // An image more moves no more than what a class gets more.
  write("moved/cat/new.jpg");
  std::set<std::string> after = names(Subset::kValidation, "moved");
  std::vector<std::string> gone;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(gone));
  EXPECT_LE(gone.size(), 1U);
}

TEST_F(Division, IsSaid) {
  write_class("photos/cat", 10);
  write_class("photos/dog", 5);
  ::testing::internal::CaptureStderr();
  open(Subset::kValidation, "photos");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("photos has no folder val: a fifth of each class"), HasSubstr("3 of 15 images")));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(open(Subset::kTrain, "photos", false)->size(), 15);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("all 15 images are train images, as asked"));
}

TEST_F(Division, FoldersOfTheSubsetsAreReadAsTheyAre) {
  for (const std::string word : {"val", "valid", "validation", "test", "Val", "TEST"}) {
    write_class(word + "_set/Train/cat", 6);
    write_class(word + "_set/" + word + "/cat", 3);
    EXPECT_EQ(open(Subset::kTrain, word + "_set")->size(), 6) << word;
    EXPECT_EQ(open(Subset::kValidation, word + "_set")->size(), 3) << word;
  }
  // One of them counts, and test images are not mixed with those of validation.
  write_class("val_set/test/cat", 5);
  EXPECT_EQ(open(Subset::kValidation, "val_set")->size(), 3);
  // A folder of images without classes is no set of validation images.
  write("unlabelled/train/cat/1.jpg");
  write("unlabelled/test/1.jpg");
  EXPECT_EQ(core::code_of([&] { open(Subset::kValidation, "unlabelled"); }), ErrorCode::kNotFound);
}

TEST_F(Division, AFolderOfOneSubsetByItsNameIsNotDivided) {
  write_class("photos/train/cat", 10);
  write_class("photos/val/cat", 5);
  EXPECT_EQ(open(Subset::kTrain, "photos/train")->size(), 10);
  EXPECT_EQ(open(Subset::kValidation, "photos/val/")->size(), 5);
  EXPECT_EQ(core::code_of([&] { open(Subset::kValidation, "photos/train"); }), ErrorCode::kNotFound);
  EXPECT_EQ(core::code_of([&] { open(Subset::kTrain, "photos/val"); }), ErrorCode::kNotFound);
  // Alone it is a folder like others.
  write_class("alone/test/cat", 10);
  EXPECT_EQ(open(Subset::kTrain, "alone/test")->size(), 8);
}

TEST_F(Division, AClassMayBeCalledTrain) {
  write_class("vehicles/bus", 5);
  write_class("vehicles/train", 5);
  EXPECT_THAT(open(Subset::kTrain, "vehicles")->label_names(), ElementsAre("bus", "train"));
  EXPECT_EQ(open(Subset::kValidation, "vehicles")->size(), 2);
}

TEST_F(Division, ShardsOfOneWordAreRead) {
  const auto write_tar = [&](const std::string& name, const std::string& key) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    formats::TarWriter writer(files_.open_write(temp_.file(name)));
    writer.write(key + ".jpg", "image");
    writer.write(key + ".cls", "0");
    writer.close();
  };
  for (const char* name : {"tars/x-train-0.tar", "tars/x-valid-0.tar", "tars/x-valid-1.tar", "tars/x-test-0.tar"}) {
    write_tar(name, "image");
  }
  EXPECT_EQ(open(Subset::kTrain, "tars")->size(), 1);
  EXPECT_EQ(open(Subset::kValidation, "tars")->size(), 2);
  EXPECT_EQ(open(Subset::kValidation, "tars/*.tar")->size(), 2);
  EXPECT_EQ(open(Subset::kValidation, "tars/x-test-*.tar")->size(), 1);
  // TFRecords, whose content nobody looks at here.
  for (const char* name : {"records/train-00000-of-00001", "records/val-00000-of-00002", "records/val-00001-of-00002",
                           "records/test-00000-of-00001"}) {
    write(name);
  }
  const auto found = [&](std::string_view prefix) {
    return find_stored_images({.directory = temp_.file("records"), .subset = Subset::kValidation}, prefix).paths;
  };
  EXPECT_THAT(found("validation"),
              ElementsAre(temp_.file("records/val-00000-of-00002"), temp_.file("records/val-00001-of-00002")));
  EXPECT_THAT(found("test"), ElementsAre(temp_.file("records/test-00000-of-00001")));
}

// tools/golden/division.py computes the expected names from the words of docs/formats/class_folders.md.
TEST_F(Division, PartsAndFoldsHaveTheNamesOfTheHash) {
  write_class("photos/cat", 12);
  write_class("photos/dog", 1);
  const auto validation = [&](const data::Division& division) {
    std::set<std::string> names;
    const auto dataset = datasets().get("imagenet")({.directory = temp_.file("photos"),
                                                     .subset = Subset::kValidation,
                                                     .division = division,
                                                     .requires_division = true});
    for (int64_t i = 0; i < dataset->size(); ++i) {
      names.insert(dataset->read(i).value().where.substr(temp_.file("photos").size() + 1));
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(validation({.validation = 0.25}), (Names{"cat/0002.jpg", "cat/0008.jpg", "cat/0010.jpg"}));
  EXPECT_EQ(validation({.folds = 5, .fold = 0}), (Names{"cat/0004.jpg", "cat/0006.jpg"}));
  EXPECT_EQ(validation({.folds = 5, .fold = 1}), (Names{"cat/0002.jpg", "cat/0008.jpg", "cat/0010.jpg"}));
  EXPECT_EQ(validation({.folds = 5, .fold = 2}), (Names{"cat/0007.jpg", "cat/0011.jpg"}));
  EXPECT_EQ(validation({.folds = 5, .fold = 3}),
            (Names{"cat/0001.jpg", "cat/0003.jpg", "cat/0009.jpg", "dog/0000.jpg"}));
  EXPECT_EQ(validation({.folds = 5, .fold = 4}), (Names{"cat/0000.jpg", "cat/0005.jpg"}));
}

TEST_F(Division, EachImageIsForValidationInOneFold) {
  const std::map<std::string, int> sizes{{"cat", 60}, {"dog", 10}, {"elk", 7}, {"fox", 2}, {"gnu", 1}};
  for (const auto& [name, images] : sizes) write_class("photos/" + name, images);
  constexpr int64_t kFolds = 7;
  std::multiset<std::string> all;
  for (int64_t fold = 0; fold < kFolds; ++fold) {
    const auto part = [&](Subset subset) {
      return datasets().get("imagenet")({.directory = temp_.file("photos"),
                                         .subset = subset,
                                         .division = data::Division{.folds = kFolds, .fold = fold},
                                         .requires_division = true});
    };
    const auto validation = part(Subset::kValidation), training = part(Subset::kTrain);
    EXPECT_EQ(validation->size() + training->size(), 80);
    std::map<int64_t, int> counts;
    std::set<std::string> here;
    for (int64_t i = 0; i < validation->size(); ++i) {
      const Record record = validation->read(i).value();
      EXPECT_EQ(validation->known_label(i), record.label);
      all.insert(record.where);
      here.insert(record.where);
      ++counts[record.label];
    }
    for (int64_t i = 0; i < training->size(); ++i) EXPECT_FALSE(here.contains(training->read(i).value().where));
    // Stratified: 60 / 7 is 8 or 9, 10 / 7 is 1 or 2.
    EXPECT_THAT(counts[0], ::testing::AnyOf(8, 9)) << fold;
    EXPECT_THAT(counts[1], ::testing::AnyOf(1, 2)) << fold;
    EXPECT_EQ(counts[2], 1) << fold;
  }
  EXPECT_EQ(all.size(), 80U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 80U);
}

TEST_F(Division, AskedForDividesAFolderTrainAlone) {
  write_class("photos/train/cat", 10);
  const DatasetOptions options{.directory = temp_.file("photos"),
                               .subset = Subset::kValidation,
                               .division = data::Division{.validation = 0.3},
                               .requires_division = true};
  EXPECT_EQ(datasets().get("imagenet")(options)->size(), 3);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(datasets().get("shapes")(options)->size(), 3);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("30 % of each class, by a hash of the images' names"), HasSubstr("3 of 10 images")));
}

TEST_F(Division, OfDataWithValidationImagesIsRefusedWhereAskedFor) {
  write_class("photos/train/cat", 10);
  write_class("photos/val/cat", 4);
  write("records/train-00000-of-00001");
  DatasetOptions options{.directory = temp_.file("photos"),
                         .subset = Subset::kTrain,
                         .division = data::Division{.validation = 0.3},
                         .requires_division = true};
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")(options); }),
              AllOf(HasSubstr("validation images of their own"), HasSubstr("--validation_split")));
  options.requires_division = false;
  EXPECT_EQ(datasets().get("imagenet")(options)->size(), 10);
  options.subset = Subset::kValidation;
  EXPECT_EQ(datasets().get("imagenet")(options)->size(), 4);
  options.requires_division = true;
  options.directory = temp_.file("records");
  EXPECT_THAT(core::message_of([&] { datasets().get("imagenet")(options); }), HasSubstr("cannot be divided"));
  write("cifar/data_batch_1.bin");
  options.directory = temp_.file("cifar");
  options.subset = Subset::kTrain;
  EXPECT_THAT(core::message_of([&] { datasets().get("cifar10")(options); }), HasSubstr("cannot be divided"));
}

TEST_F(Division, IsATextAndBack) {
  for (const data::Division& division : {data::Division{}, data::Division{.validation = 0.1},
                                         data::Division{.folds = 5, .fold = 4}, data::Division{.folds = 2}}) {
    EXPECT_EQ(division_of_text(division_text(division)), division);
  }
  EXPECT_EQ(division_text({.validation = 0.1}), "validation_split=0.1");
  EXPECT_EQ(division_text({.folds = 5, .fold = 1}), "folds=5,fold=1");
  EXPECT_EQ(division_flags({.validation = 0.25}), "--validation_split=0.25");
  EXPECT_EQ(division_flags({.folds = 5, .fold = 1}), "--folds=5 --fold=1");
  for (const char* text :
       {"", "validation_split=", "validation_split=0", "validation_split=1", "validation_split=nan", "folds=5",
        "folds=5,fold=5", "folds=1,fold=0", "folds=1e300,fold=0", "folds=5,fold=-1", "folds=5,fold=1,", "half"}) {
    EXPECT_FALSE(division_of_text(text)) << text;
  }
}

TEST_F(Division, OfAnotherNumberIsRefused) {
  for (const data::Division& division :
       {data::Division{.validation = 0}, data::Division{.validation = 1}, data::Division{.folds = 1},
        data::Division{.folds = -1}, data::Division{.folds = 3, .fold = 3}, data::Division{.folds = 3, .fold = -1}}) {
    EXPECT_EQ(core::code_of([&] { division.validate(); }), ErrorCode::kInvalidArgument) << division.validation;
  }
}

TEST_F(Division, SaysWhichNumberIsOutOfRange) {
  const auto refusal = [](const data::Division& division) { return core::message_of([&] { division.validate(); }); };
  EXPECT_EQ(refusal({.validation = 1.5}),
            "part of the images for validation is out of range: expected above 0 and below 1, got 1.5");
  EXPECT_EQ(refusal({.folds = 1'000'001}), "number of folds is out of range: expected 2 to 1000000, got 1000001");
  EXPECT_EQ(refusal({.folds = 1'000'000}), "no error");
  EXPECT_EQ(refusal({.folds = 2, .fold = 3}), "number of the fold is out of range: expected 0 to 1, got 3");
}

// The only image is in fold 3 of 5 (tools/golden/division.py).
TEST_F(Division, AFoldWithoutImagesIsTold) {
  write_class("photos/dog", 1);
  const auto open_fold = [&](Subset subset) {
    return datasets().get("imagenet")({.directory = temp_.file("photos"),
                                       .subset = subset,
                                       .division = data::Division{.folds = 5, .fold = 2},
                                       .requires_division = true});
  };
  EXPECT_THAT(
      core::message_of([&] { open_fold(Subset::kValidation); }, ErrorCode::kNotFound),
      AllOf(HasSubstr("fold 2 has no validation images"), HasSubstr("more images, or fewer folds, got 1 images")));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(open_fold(Subset::kTrain)->size(), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("fold 2 of the 5 folds 0 to 4 of each class"),
                                                              HasSubstr("1 of 1 images are train images")));
}

TEST_F(Division, SaysWhatIsLeftOut) {
  write_class("phone/cat", 5);
  write("phone/dog/1.HEIC");
  write("phone/dog/2.heic");
  write("phone/cat/notes.txt");
  write("phone/cat/.DS_Store");
  write("phone/cat/Thumbs.db");
  write("phone/lost.jpg");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(open(Subset::kTrain, "phone")->size(), 4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("left out: 2 .heic, 1 .txt; convert pictures to one of JPEG"),
                    HasSubstr("1 of 2 classes have no"), HasSubstr("1 images lie in no class folder"),
                    HasSubstr("all images are of one class, 'cat'")));
  // Where nothing can be read, too.
  write("heic/cat/1.heic");
  write("heic/dog/1.heic");
  EXPECT_THAT(core::message_of([&] { open(Subset::kTrain, "heic"); }, ErrorCode::kNotFound),
              AllOf(HasSubstr("no images are what the folders hold: 2 .heic"), HasSubstr("convert pictures")));
  // Two classes of images are nothing to warn of.
  write_class("two/cat", 5);
  write_class("two/dog", 5);
  ::testing::internal::CaptureStderr();
  open(Subset::kTrain, "two");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(Not(HasSubstr("left out")), Not(HasSubstr("one class")), Not(HasSubstr("have no image"))));
}

}  // namespace
}  // namespace trainyard::data::dataset_division_test
