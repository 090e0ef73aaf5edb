// Which of a sample's files says its label.
#include "trainyard/data/datasets/webdataset.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/data/testing/dataset_folder.h"

namespace trainyard::data::webdataset_test {
namespace {

using ::testing::ElementsAre;

class WebDatasetLabels : public DatasetFolderTest {
 protected:
  std::unique_ptr<Dataset> open() {
    return datasets().get("imagenet")({.directory = temp_.path(), .subset = Subset::kTrain});
  }
};

// JSON of other programs may be longer than any label: it names no class then.
TEST_F(WebDatasetLabels, ANumberNeedsNoJsonThatCanBeRead) {
  std::string longest = R"({"class_name": "cat"})";
  longest.resize(size_t{1} << 20, ' ');
  write_tar(
      "train.tar",
      {{"0.jpg", "x"}, {"0.cls", "1"}, {"0.json", longest}, {"1.jpg", "x"}, {"1.cls", "2"}, {"1.json", longest + " "}});
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 2);
  const Record named = dataset->read(0).value(), unnamed = dataset->read(1).value();
  EXPECT_EQ(named.label, 1);
  EXPECT_EQ(named.label_text, "cat");
  EXPECT_EQ(unnamed.label, 2);
  EXPECT_EQ(unnamed.label_text, "");
}

TEST_F(WebDatasetLabels, AClsFileThatIsWrongIsNotReplacedByJson) {
  write_tar("train.tar",
            {{"0.jpg", "x"}, {"0.cls", " \n"}, {"0.json", R"({"label": 5})"}, {"1.jpg", "x"}, {"1.cls", "7"}});
  const auto dataset = open();
  ASSERT_EQ(dataset->size(), 2);
  const auto wrong = dataset->read(0);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().detail().problem, "label is empty");
  EXPECT_EQ(dataset->read(1).value().label, 7);
}

TEST_F(WebDatasetLabels, ANameOfAClsFileComesBeforeThatOfJson) {
  write_tar("train.tar", {{"0.jpg", "x"},
                          {"0.cls", "cat"},
                          {"0.json", R"({"class_name": "dog"})"},
                          {"1.jpg", "x"},
                          {"1.cls", "ant"},
                          {"1.json", R"({"label": 3})"}});
  const auto dataset = open();
  EXPECT_THAT(dataset->label_names(), ElementsAre("ant", "cat"));
  EXPECT_THAT(labels(*dataset), ElementsAre(1, 0));
  EXPECT_EQ(dataset->read(0).value().label_text, "cat");
}

TEST_F(WebDatasetLabels, AreNumbersWhereNoneCanBeRead) {
  write_tar("train.tar", {{"0.jpg", "x"}, {"1.jpg", "x"}, {"1.cls", " "}});
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->label_count(), 1000);
}

}  // namespace
}  // namespace trainyard::data::webdataset_test
