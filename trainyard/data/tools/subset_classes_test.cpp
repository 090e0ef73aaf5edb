// Validation images get the labels of training's classes, whichever of them are there.
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/data/tools/convert_dataset.h"
#include "trainyard/data/tools/verify_dataset.h"
#include "trainyard/formats/containers/tar.h"

namespace trainyard::data::subset_classes_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;
using Names = std::vector<std::string>;

class SubsetClasses : public DatasetFolderTest {
 protected:
  static std::string jpeg() {
    const std::vector<std::byte> bytes = encode_jpeg(flat_image(8, 8, 100));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void write(const std::string& name) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), jpeg());
  }
  // One sample a label, "0.jpg" and what `labels` has as the other file: {".cls", "cat"}.
  void write_tar(const std::string& name, const std::vector<std::pair<std::string, std::string>>& labels) {
    formats::TarWriter writer(files_.open_write(temp_.file(name)));
    for (size_t i = 0; i < labels.size(); ++i) {
      writer.write(fmt::format("{}.jpg", i), jpeg());
      writer.write(fmt::format("{}{}", i, labels[i].first), labels[i].second);
    }
    writer.close();
  }
  std::unique_ptr<Dataset> open(Subset subset, const KnownClasses& classes = {}, const std::string& name = "imagenet") {
    return datasets().get(name)({.directory = temp_.path(), .subset = subset, .classes = classes});
  }

  const KnownClasses animals_{.names = {"bird", "cat", "dog"}, .origin = "the training images"};
};

TEST_F(SubsetClasses, FoldersAreNumberedByTraining) {
  for (const char* file : {"val/cat/1.jpg", "val/dog/1.jpg", "val/dog/2.jpg"}) write(file);
  const auto alone = open(Subset::kValidation);
  EXPECT_THAT(labels(*alone), ElementsAre(0, 1, 1)) << "without training's names by their own";
  const auto dataset = open(Subset::kValidation, animals_);
  EXPECT_THAT(labels(*dataset), ElementsAre(1, 2, 2));
  EXPECT_EQ(dataset->label_names(), animals_.names);
  EXPECT_EQ(dataset->label_count(), 3);
  EXPECT_EQ(dataset->read(2).value().label_text, "dog");
}

TEST_F(SubsetClasses, AnUnknownFolderFailsOrIsSkipped) {
  for (const char* file : {"val/ant/1.jpg", "val/ant/2.jpg", "val/dog/1.jpg"}) write(file);
  EXPECT_THAT(core::message_of([&] { open(Subset::kValidation, animals_); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr(temp_.file("val")), HasSubstr("1 unknown: 'ant'")));
  KnownClasses skipping = animals_;
  skipping.on_unknown = OnUnknownClass::kSkip;
  ::testing::internal::CaptureStderr();
  const auto dataset = open(Subset::kValidation, skipping);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("2 images of 1 unknown classes are left out: 'ant'"));
  EXPECT_THAT(labels(*dataset), ElementsAre(2));
  std::filesystem::remove_all(temp_.file("val/dog"));
  EXPECT_EQ(core::code_of([&] { open(Subset::kValidation, skipping); }), ErrorCode::kNotFound) << "nothing is left";
}

// Hidden folders and files beside the folders are no classes; an empty folder is one.
TEST_F(SubsetClasses, WhatIsAClassFolder) {
  for (const char* file : {"train/b/1.jpg", "train/.ipynb_checkpoints/1.jpg", "train/notes.jpg", "train/10/1.jpg",
                           "train/2/1.jpg", "train/ a /1.jpg", "train/x\ny/1.jpg", "train/\xc3\xa9/1.jpg"}) {
    write(file);
  }
  files_.make_directories(temp_.file("train/empty"));
  const Names expected = {" a ", "10", "2", "b", "empty", "x\ny", "\xc3\xa9"};
  EXPECT_EQ(open(Subset::kTrain)->label_names(), expected);
  EXPECT_EQ(training_class_names("imagenet", {.directory = temp_.path(), .subset = Subset::kValidation}), expected);
  write("val/\xc3\xa9/1.jpg");
  write("val/x\ny/1.jpg");
  write("val/.cache/1.jpg");
  EXPECT_THAT(labels(*open(Subset::kValidation, {.names = expected, .origin = "training"})), ElementsAre(5, 6));
}

TEST_F(SubsetClasses, WebDatasetLabelsCanBeNames) {
  write_tar("train-0.tar", {{".cls", "dog\n"}, {".json", R"({"label": "cat"})"}, {".json", R"({"class": "dog"})"}});
  write_tar("train-1.tar", {{".json", R"({"classname": "ant", "caption": "an ant"})"}, {".cls", " cat "}});
  const auto train = open(Subset::kTrain);
  EXPECT_THAT(train->label_names(), ElementsAre("ant", "cat", "dog"));
  EXPECT_EQ(train->label_count(), 3);
  EXPECT_THAT(labels(*train), ElementsAre(2, 1, 2, 0, 1));
  EXPECT_EQ(train->read(1).value().label_text, "cat");
  write_tar("val-0.tar", {{".cls", "dog"}, {".cls", "cat"}});
  const KnownClasses known{.names = train->label_names(), .origin = "the training images"};
  EXPECT_THAT(labels(*open(Subset::kValidation, known)), ElementsAre(2, 1));
  EXPECT_THAT(labels(*open(Subset::kValidation)), ElementsAre(1, 0)) << "without training's names by their own";
  EXPECT_EQ(training_class_names("imagenet", {.directory = temp_.path()}), known.names);
}

TEST_F(SubsetClasses, UnknownNamesInAWebDatasetFailOrAreSkipped) {
  write_tar("val-0.tar", {{".cls", "eel"}, {".cls", "cat"}, {".cls", "fox"}, {".cls", "eel"}});
  EXPECT_THAT(core::message_of([&] { open(Subset::kValidation, animals_); }, ErrorCode::kInvalidArgument),
              HasSubstr("2 unknown: 'eel', 'fox'"));
  KnownClasses skipping = animals_;
  skipping.on_unknown = OnUnknownClass::kSkip;
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(labels(*open(Subset::kValidation, skipping)), ElementsAre(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("3 images of 2 unknown classes are left out"));
}

TEST_F(SubsetClasses, NamesAndNumbersDoNotMix) {
  write_tar("train-0.tar", {{".cls", "cat"}, {".cls", "7"}});
  EXPECT_THAT(
      core::message_of([&] { open(Subset::kTrain); }, ErrorCode::kInvalidArgument),
      AllOf(HasSubstr("labels are names and numbers"), HasSubstr("train-0.tar at offset "), HasSubstr("got 7")));
  write_tar("train-0.tar", {{".cls", "7"}, {".cls", "cat"}});
  const auto numbers = open(Subset::kTrain);
  EXPECT_TRUE(numbers->label_names().empty());
  EXPECT_EQ(numbers->read(0).value().label, 7);
  EXPECT_THAT(numbers->read(1).error().what(), AllOf(HasSubstr("label is no number"), HasSubstr("'cat'")));
  write_tar("train-0.tar", {{".json", R"({"label": 3, "classname": "cat"})"}, {".json", R"({"class": "4"})"}});
  const auto both = open(Subset::kTrain);
  EXPECT_THAT(labels(*both), ElementsAre(3, 4));
  EXPECT_EQ(both->read(0).value().label_text, "cat") << "compared while it is read";
}

// A data set that has names of its own takes no others.
TEST_F(SubsetClasses, NamesOfCifarAreCifars) {
  write_tar("train-0.tar", {{".cls", "truck"}, {".cls", "airplane"}});
  EXPECT_THAT(labels(*open(Subset::kTrain, {}, "cifar10")), ElementsAre(9, 0));
  write_tar("train-0.tar", {{".cls", "truk"}});
  EXPECT_THAT(core::message_of([&] { open(Subset::kTrain, {}, "cifar10"); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("1 unknown: 'truk' ('truk' may be 'truck')"), HasSubstr("'airplane', 'automobile'")));
}

// What is converted keeps training's numbers, and a class that only the validation has is an error.
TEST_F(SubsetClasses, ConvertedValidationImagesHaveTrainingsNumbers) {
  for (const char* file : {"train/ant/1.jpg", "train/bee/1.jpg", "train/cat/1.jpg", "val/bee/1.jpg", "val/cat/1.jpg"}) {
    write(file);
  }
  const core::TempDir output;
  for (const auto& [form, first] : {std::pair{"tfrecord", 1}, {"webdataset", 0}, {"folder", 0}}) {
    const std::string to = output.file(form);
    convert_dataset({.name = "imagenet", .from = temp_.path(), .output = to, .to = form});
    const auto val = datasets().get("imagenet")({.directory = to, .subset = Subset::kValidation});
    EXPECT_THAT(labels(*val), ElementsAre(1 + first, 2 + first)) << form;
  }
  EXPECT_EQ(files_.list(output.file("folder/val")), (Names{"ant", "bee", "cat"}));
  write("val/dog/1.jpg");
  ConvertOptions options{.name = "imagenet", .from = temp_.path(), .output = output.file("more"), .to = "tfrecord"};
  EXPECT_THAT(core::message_of([&] { convert_dataset(options); }, ErrorCode::kInvalidArgument),
              HasSubstr("1 unknown: 'dog'"));
  options.on_unknown_class = OnUnknownClass::kSkip;
  EXPECT_EQ(convert_dataset(options).validation, 2);
}

TEST_F(SubsetClasses, VerifyFindsClassesThatTrainingLacks) {
  for (const char* file : {"train/ant/1.jpg", "val/ant/1.jpg"}) write(file);
  VerifyOptions options{.name = "imagenet", .directory = temp_.path()};
  std::string told;
  options.on_bad = [&](const core::Error& error) { told += error.what(); };
  EXPECT_EQ(verify_dataset(options).bad, 0);
  write("val/dog/1.jpg");
  EXPECT_EQ(verify_dataset(options).bad, 1);
  EXPECT_THAT(told, HasSubstr("1 unknown: 'dog'"));
}

TEST_F(SubsetClasses, VerifyFindsNamesThatTrainingsArchivesLack) {
  VerifyOptions options{.name = "imagenet", .directory = temp_.path()};
  std::string told;
  options.on_bad = [&](const core::Error& error) { told += error.what(); };
  write_tar("train-0.tar", {{".cls", "cat"}, {".cls", "dog"}});
  write_tar("val-0.tar", {{".cls", "dog"}});
  EXPECT_EQ(verify_dataset(options).bad, 0);
  write_tar("val-0.tar", {{".cls", "dog"}, {".cls", "eel"}});
  const VerifiedSamples found = verify_dataset(options);
  EXPECT_EQ(found.bad, 1);
  EXPECT_EQ(found.validation, 2);
  EXPECT_THAT(told, HasSubstr("1 unknown: 'eel'"));
  write_tar("train-0.tar", {{".cls", "1"}});
  write_tar("val-0.tar", {{".cls", "7"}});
  EXPECT_EQ(verify_dataset(options).bad, 0) << "numbers";
}

// A run takes the first label of all archives for what labels are.
TEST_F(SubsetClasses, VerifyReadsTheLabelsOfAllArchivesAsARunDoes) {
  VerifyOptions options{.name = "imagenet", .directory = temp_.path()};
  std::string told;
  options.on_bad = [&](const core::Error& error) { told += error.what(); };
  write_tar("train-0.tar", {{".cls", "7"}});
  write_tar("train-1.tar", {{".cls", "cat"}, {".cls", "dog"}});
  const VerifiedSamples found = verify_dataset(options);
  EXPECT_EQ(found.train, 3);
  EXPECT_EQ(found.bad, 2);
  EXPECT_THAT(told, AllOf(HasSubstr("label is no number"), HasSubstr("'cat'"), HasSubstr("'dog'")));
  write_tar("train-0.tar", {{".cls", "ant"}});
  EXPECT_EQ(verify_dataset(options).bad, 0);
  write_tar("train-1.tar", {{".cls", "7"}});
  EXPECT_THAT(core::message_of([&] { verify_dataset(options); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("labels are names and numbers"), HasSubstr("train-1.tar at offset ")));
  files_.write_file_atomically(temp_.file("train-1.tar"), std::string(1024, 'x'));
  const VerifiedSamples others = verify_dataset(options);
  EXPECT_EQ(others.train, 1) << "a damaged archive does not hide the others";
  EXPECT_EQ(others.bad, 1);
}

TEST_F(SubsetClasses, AWebDatasetOfUnknownNamesAloneIsNoSubset) {
  write_tar("val-0.tar", {{".cls", "eel"}, {".cls", "fox"}});
  KnownClasses skipping = animals_;
  skipping.on_unknown = OnUnknownClass::kSkip;
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(core::message_of([&] { open(Subset::kValidation, skipping); }, ErrorCode::kNotFound),
              HasSubstr("WebDataset shards hold no samples of known classes"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("2 images of 2 unknown classes are left out: 'eel', 'fox'"));
}

}  // namespace
}  // namespace trainyard::data::subset_classes_test
