#include "trainyard/data/datasets/class_names_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/sample_labels.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/formats/containers/tar.h"

namespace trainyard::data::class_names_file_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;
using Names = std::vector<std::string>;

class ClassNamesFile : public DatasetFolderTest {
 protected:
  std::unique_ptr<Dataset> open(Subset subset = Subset::kTrain) {
    return datasets().get("imagenet")({.directory = temp_.path(), .subset = subset});
  }
};

TEST_F(ClassNamesFile, IsReadBackAsItWasWritten) {
  const Names names = {"cat", "a\\b", "two\nlines", " blank ", "\xc3\xa9"};
  write_class_names(files_, temp_.path(), names);
  EXPECT_EQ(read_class_names(files_, temp_.path()), names);
  EXPECT_THAT(read_class_names(files_, temp_.file("elsewhere")), IsEmpty());
}

TEST_F(ClassNamesFile, MayHaveTheLineBreaksOfWindows) {
  for (const char* content : {"b\r\na\r\n", "b\r\na", "b\r\na\r\n\r\n"}) {
    write("classnames.txt", content);
    EXPECT_THAT(read_class_names(files_, temp_.path()), ElementsAre("b", "a"));
  }
  write("classnames.txt", "a\rb\r\nc\r\n");
  EXPECT_THAT(read_class_names(files_, temp_.path()), ElementsAre("a\rb", "c")) << "a return within a name";
  const Names names = {"return\r", "none"};
  write_class_names(files_, temp_.path(), names);
  EXPECT_EQ(read_class_names(files_, temp_.path()), names);
}

TEST_F(ClassNamesFile, LiesInTheFolderOrAroundThatOfASubset) {
  write("classnames.txt", "b\na");
  for (const char* folder : {"train", "Val", "valid", "validation", "test"}) {
    EXPECT_THAT(read_class_names(files_, temp_.file(folder)), ElementsAre("b", "a")) << folder;
  }
  for (const char* folder : {"train/", "Val//", "val/.", "photos/../test"}) {
    EXPECT_THAT(read_class_names(files_, temp_.file(folder)), ElementsAre("b", "a")) << folder;
  }
  EXPECT_THAT(read_class_names(files_, temp_.file("photos")), IsEmpty()) << "it may belong to something else";
  EXPECT_THAT(read_class_names(files_, temp_.file("photos/")), IsEmpty());
  write("train/classnames.txt", "own\n\n");
  EXPECT_THAT(read_class_names(files_, temp_.file("train")), ElementsAre("own"));
}

TEST_F(ClassNamesFile, WithoutANameIsAnError) {
  for (const auto& [content, found] :
       {std::pair{"", "got none"}, {"\n\n", "got none"}, {"a\n\nb\n", "line 2 is empty"}}) {
    write("classnames.txt", content);
    const std::string message =
        core::message_of([&] { read_class_names(files_, temp_.path()); }, core::ErrorCode::kCorruptData);
    EXPECT_THAT(message, HasSubstr(found));
    EXPECT_THAT(message, HasSubstr(temp_.file("classnames.txt")));
  }
}

TEST_F(ClassNamesFile, NumbersClassFolders) {
  for (const char* file : {"train/ant/1.jpg", "train/bee/1.jpg", "val/bee/1.jpg"}) write(file);
  write("classnames.txt", "zebra\nbee\nant\n");
  EXPECT_THAT(open()->label_names(), ElementsAre("zebra", "bee", "ant"));
  EXPECT_EQ(open()->read(0).value().label, 2) << "ant comes first, as folders do";
  EXPECT_EQ(open(Subset::kValidation)->read(0).value().label, 1);
  EXPECT_THAT(training_class_names("imagenet", {.directory = temp_.path()}), ElementsAre("zebra", "bee", "ant"));
}

// A folder that was added since would have no label.
TEST_F(ClassNamesFile, ThatLacksAFolderNumbersNone) {
  for (const char* file : {"train/ant/1.jpg", "train/bee/1.jpg", "train/wasp/1.jpg"}) write(file);
  write("classnames.txt", "bee\nant\n");
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(open()->label_names(), ElementsAre("ant", "bee", "wasp"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("classnames.txt does not name the folders 'wasp'"));
}

TEST_F(ClassNamesFile, NamesTheNumbersOfAWebDataset) {
  formats::TarWriter writer(files_.open_write(temp_.file("train.tar")));
  writer.write("0.jpg", "x");
  writer.write("0.cls", "1");
  writer.write("1.jpg", "x");
  writer.write("1.cls", "2");
  writer.close();
  write("classnames.txt", "zebra\nant\n");
  const auto dataset = open();
  EXPECT_THAT(dataset->label_names(), ElementsAre("zebra", "ant"));
  EXPECT_EQ(dataset->label_count(), 2);
  EXPECT_EQ(dataset->read(0).value().label, 1);
  EXPECT_EQ(dataset->read(1).error().detail().problem, "label is out of range");
}

// A number in KEY.cls gets its name from KEY.json, unless that speaks of another number.
TEST_F(ClassNamesFile, IsNotNeededWhereJsonNamesANumber) {
  formats::TarWriter writer(files_.open_write(temp_.file("train.tar")));
  const std::pair<const char*, const char*> samples[] = {{R"({"label": 1, "class_name": "cat"})", "cat"},
                                                         {R"({"class_name": "cat", "width": 3})", "cat"},
                                                         {R"({"label": "cat"})", "cat"},
                                                         {R"({"label": 2, "class_name": "dog"})", ""},
                                                         {"[[[", ""}};
  for (size_t i = 0; i < std::size(samples); ++i) {
    writer.write(std::to_string(i) + ".jpg", "x");
    writer.write(std::to_string(i) + (i % 2 == 0 ? ".json" : ".cls"), i % 2 == 0 ? samples[i].first : "1");
    writer.write(std::to_string(i) + (i % 2 == 0 ? ".cls" : ".json"), i % 2 == 0 ? "1" : samples[i].first);
  }
  writer.close();
  const auto dataset = open();
  for (size_t i = 0; i < std::size(samples); ++i) {
    const Record record = dataset->read(static_cast<int64_t>(i)).value();
    EXPECT_EQ(record.label, 1);
    EXPECT_EQ(record.label_text, samples[i].second) << samples[i].first;
  }
}

TEST_F(ClassNamesFile, NamesOtherClassesInCifarsForm) {
  std::string batch;
  for (int i = 0; i < 3; ++i) {
    batch.push_back(static_cast<char>(i));
    batch.append(3072, 'x');
  }
  for (const char* name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"}) {
    write(std::string(name) + ".bin", batch);
  }
  const auto open_cifar = [&] { return datasets().get("cifar10")({.directory = temp_.path()}); };
  EXPECT_EQ(open_cifar()->label_names(), cifar10_class_names());
  write(kCifar10NamesFile, "ant\nbee\n\n");
  EXPECT_THAT(open_cifar()->label_names(), ElementsAre("ant", "bee"));
  EXPECT_EQ(open_cifar()->read(1).value().label, 1);
  EXPECT_EQ(open_cifar()->read(2).error().detail().problem, "label has no name");
  EXPECT_THAT(std::string(open_cifar()->read(2).error().what()),
              HasSubstr("data_batch_1.bin, image 2: expected one of the 2 classes in batches.meta.txt, got 2"));
  std::vector<int64_t> labels = sample_labels(*open_cifar());
  ASSERT_EQ(labels.size(), 15U);
  labels.resize(3);
  EXPECT_THAT(labels, ElementsAre(0, 1, -1)) << "what cannot be read is never drawn";
  write(kCifar10NamesFile, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
  EXPECT_EQ(core::thrown_by([&] { open_cifar(); }).detail().problem, "too many class names for CIFAR-10 batches");
  EXPECT_EQ(core::thrown_by([&] { open_cifar(); }).detail().expected, "10 at most");
  EXPECT_EQ(core::thrown_by([&] { open_cifar(); }).detail().actual, "11");
}

}  // namespace
}  // namespace trainyard::data::class_names_file_test
