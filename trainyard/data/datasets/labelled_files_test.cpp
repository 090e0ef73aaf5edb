#include "trainyard/data/datasets/labelled_files.h"

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

namespace trainyard::data::labelled_files_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not;

class LabelTable : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a.jpg", "b.jpg", "below/c.jpg"}) write(std::string("photos/") + name);
  }
  void write(const std::string& name, const std::string& content = "image") {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), content);
  }
  DatasetOptions options(const std::string& table) {
    write("labels.csv", table);
    return {.directory = temp_.file("photos"), .divide = false, .labels_csv = temp_.file("labels.csv")};
  }
  LabelledFiles open(const std::string& table) { return LabelledFiles(options(table)); }
  std::string refusal(const std::string& table, ErrorCode code = ErrorCode::kInvalidArgument) {
    return core::message_of([&] { open(table); }, code);
  }
  static std::vector<int32_t> labels_of(const LabelledFiles& set, int64_t index) {
    const auto labels = set.labels(index);
    return {labels.begin(), labels.end()};
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(LabelTable, OfOneLabelEach) {
  const LabelledFiles set =
      open("label,file\r\n\"dog, small\",./b.jpg\r\n cat ,a.jpg\r\n\"dog, small\",\"below/c.jpg\"\r\n");
  EXPECT_THAT(set.label_names(), ElementsAre("cat", "dog, small"));
  EXPECT_FALSE(set.has_label_sets());
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.file(0), "b.jpg");
  EXPECT_EQ(set.known_label(0), 1);
  EXPECT_EQ(set.known_label(1), 0);
  const Record record = set.read(2).value();
  EXPECT_EQ(record.label, 1);
  EXPECT_EQ(record.label_text, "dog, small");
  EXPECT_EQ(record.where, temp_.file("photos/below/c.jpg"));
  EXPECT_EQ(record.bytes.size(), 5U);
  EXPECT_THAT(record.labels, IsEmpty());
}

TEST_F(LabelTable, OfSeparatedLabels) {
  for (const char* column : {"labels", "label"}) {
    const LabelledFiles set =
        open(fmt::format("file,{}\na.jpg,night; cat\nb.jpg,\nbelow/c.jpg,cat;cat;;dog\n", column));
    EXPECT_TRUE(set.has_label_sets()) << column;
    EXPECT_THAT(set.label_names(), ElementsAre("cat", "dog", "night"));
    EXPECT_THAT(labels_of(set, 0), ElementsAre(0, 2));
    EXPECT_THAT(labels_of(set, 1), IsEmpty());
    EXPECT_THAT(labels_of(set, 2), ElementsAre(0, 1));
    EXPECT_EQ(set.known_label(0), std::nullopt);
    EXPECT_THAT(set.read(0).value().labels, ElementsAre(0, 2));
  }
}

TEST_F(LabelTable, OfColumns) {
  const LabelledFiles set = open("night,file,cat\n0,a.jpg,1\n1,b.jpg, 1\n0,below/c.jpg,0\n");
  EXPECT_THAT(set.label_names(), ElementsAre("night", "cat"));
  EXPECT_THAT(labels_of(set, 0), ElementsAre(1));
  EXPECT_THAT(labels_of(set, 1), ElementsAre(0, 1));
  EXPECT_THAT(labels_of(set, 2), IsEmpty());
}

// However its path is written, an image is the one in the folder, and falls into the same part of a division.
TEST_F(LabelTable, PathsAreThoseOfTheFiles) {
  const LabelledFiles set = open("file,label\n.//a.jpg,cat\nbelow//c.jpg,dog\n././b.jpg,dog\n");
  ASSERT_EQ(set.size(), 3);
  EXPECT_EQ(set.file(0), "a.jpg");
  EXPECT_EQ(set.file(1), "below/c.jpg");
  EXPECT_EQ(set.file(2), "b.jpg");
}

TEST_F(LabelTable, NamesWhatIsWrong) {
  EXPECT_THAT(refusal("a.jpg,cat\n"), AllOf(HasSubstr("does not name its columns"), HasSubstr("file,label")));
  EXPECT_THAT(refusal(""), HasSubstr("an empty file"));
  EXPECT_THAT(refusal("file;label\na.jpg;cat\n"), HasSubstr("commas between the columns"));
  EXPECT_THAT(refusal("file,cat,cat\na.jpg,1,0\n"), HasSubstr("does not name its columns"));
  EXPECT_THAT(refusal("file,label\na.jpg,cat\nb.jpg,cat\nbelow/c.jpg,dog\nx.jpg,cat\nbelow,cat\n"),
              AllOf(HasSubstr("missing"), HasSubstr("'x.jpg' in line 5, 'below' in line 6"), HasSubstr("--data_dir")));
  EXPECT_THAT(refusal("file,label\na.jpg,cat\nb.jpg,cat\n./a.jpg,dog\nbelow/c.jpg,cat\n"),
              AllOf(HasSubstr("two rows"), HasSubstr("'a.jpg' in lines 2 and 4")));
  EXPECT_THAT(refusal("file,label\na.jpg,cat\nbelow//c.jpg,cat\nb.jpg,cat\nbelow/./c.jpg,dog\nbelow/c.jpg,dog\n"),
              AllOf(HasSubstr("two rows"), HasSubstr("'below/c.jpg' in lines 3 and 5"),
                    HasSubstr("'below/c.jpg' in lines 3 and 6")));
  EXPECT_THAT(refusal("file,label\na.jpg,cat\n"),
              AllOf(HasSubstr("no row"), HasSubstr("'b.jpg', 'below/c.jpg'"), HasSubstr("--on_unlabelled_file=skip")));
  EXPECT_THAT(refusal("file,label\n../a.jpg,cat\n/b.jpg,dog\n"),
              AllOf(HasSubstr("not below"), HasSubstr("'../a.jpg' in line 2, '/b.jpg' in line 3")));
  EXPECT_THAT(refusal("file,label\nbelow/../a.jpg,cat\n"), HasSubstr("'below/../a.jpg' in line 2"));
  EXPECT_THAT(refusal("file,label\na.jpg,cat\nb.jpg, \nbelow/c.jpg,dog\n"),
              AllOf(HasSubstr("no label"), HasSubstr("'b.jpg' in line 3")));
  EXPECT_THAT(refusal("file,cat,dog\na.jpg,1,0\nb.jpg,yes,0\n"),
              AllOf(HasSubstr("line 3, column 'cat'"), HasSubstr("0 or 1"), HasSubstr("'yes'")));
  EXPECT_THAT(refusal("file,label\n\"a.jpg,cat\n", ErrorCode::kCorruptData), HasSubstr("does not end"));
  EXPECT_THAT(refusal("file,label\n", ErrorCode::kNotFound), HasSubstr("no rows"));
  DatasetOptions no_folder = options("file,label\na.jpg,cat\n");
  no_folder.directory = temp_.file("photos/a.jpg");
  EXPECT_THAT(core::message_of([&] { LabelledFiles set(no_folder); }), HasSubstr("needs the folder"));
}

TEST_F(LabelTable, NamesTheFirstFiveOfMany) {
  std::string table = "file,label\n";
  for (int i = 1; i <= 5; ++i) table += fmt::format("x{}.jpg,cat\n", i);
  EXPECT_THAT(refusal(table), AllOf(HasSubstr("'x5.jpg' in line 6; "), Not(HasSubstr("in all"))));
  table += "x6.jpg,cat\n";
  EXPECT_THAT(refusal(table), AllOf(HasSubstr("'x5.jpg' in line 6, ... (6 in all)"), Not(HasSubstr("'x6.jpg'"))));
}

TEST_F(LabelTable, LeavesOutWhatItIsToldTo) {
  DatasetOptions skipping = options("file,label\na.jpg,cat\nb.jpg,elk\n");
  skipping.on_unlabelled_file = OnUnlabelledFile::kSkip;
  EXPECT_EQ(LabelledFiles(skipping).size(), 2);
  skipping.classes = {.names = {"dog", "cat"}, .origin = "a checkpoint"};
  EXPECT_THAT(core::message_of([&] { LabelledFiles set(skipping); }), HasSubstr("'elk'"));
  skipping.classes.on_unknown = OnUnknownClass::kSkip;
  ::testing::internal::CaptureStderr();
  const LabelledFiles set(skipping);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("photos: 1 images without a row in"),
                                                              HasSubstr("1 images of unknown classes are left out")));
  EXPECT_EQ(set.size(), 1);
  EXPECT_EQ(set.known_label(0), 1);
  EXPECT_THAT(set.label_names(), ElementsAre("dog", "cat"));
}

TEST_F(LabelTable, IsDividedByClass) {
  std::string table = "file,label\n";
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("{:02}.jpg", i);
    write("many/" + name);
    table += fmt::format("{},{}\n", name, i % 4 == 0 ? "rare" : "usual");
  }
  write("labels.csv", table);
  const auto part = [&](Subset subset, std::optional<Division> division = std::nullopt) {
    return datasets().get("imagenet")({.directory = temp_.file("many"),
                                       .subset = subset,
                                       .division = division,
                                       .requires_division = division.has_value(),
                                       .labels_csv = temp_.file("labels.csv")});
  };
  const auto counts = [](const Dataset& set) {
    std::map<int64_t, int> of_label;
    for (int64_t i = 0; i < set.size(); ++i) ++of_label[set.known_label(i).value()];
    return of_label;
  };
  EXPECT_EQ(counts(*part(Subset::kValidation)), (std::map<int64_t, int>{{0, 2}, {1, 6}}));
  EXPECT_EQ(counts(*part(Subset::kTrain)), (std::map<int64_t, int>{{0, 8}, {1, 24}}));
  EXPECT_EQ(counts(*part(Subset::kValidation, Division{.validation = 0.5})), (std::map<int64_t, int>{{0, 5}, {1, 15}}));
  std::set<std::string> all;
  for (int64_t fold = 0; fold < 4; ++fold) {
    const auto validation = part(Subset::kValidation, Division{.folds = 4, .fold = fold});
    for (int64_t i = 0; i < validation->size(); ++i) EXPECT_TRUE(all.insert(validation->read(i).value().where).second);
  }
  EXPECT_EQ(all.size(), 40U);
}

TEST_F(LabelTable, OfSetsIsDividedByTheRarestLabel) {
  std::string table = "file,labels\n";
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("{:02}.jpg", i);
    write("many/" + name);
    table += fmt::format("{},{}\n", name, i < 10 ? "usual;rare" : i < 35 ? "usual" : "");
  }
  write("labels.csv", table);
  const auto validation = datasets().get("imagenet")(
      {.directory = temp_.file("many"), .subset = Subset::kValidation, .labels_csv = temp_.file("labels.csv")});
  EXPECT_TRUE(validation->has_label_sets());
  std::map<size_t, int> counts;
  for (int64_t i = 0; i < validation->size(); ++i) ++counts[validation->read(i).value().labels.size()];
  EXPECT_EQ(counts, (std::map<size_t, int>{{0, 1}, {1, 5}, {2, 2}}));
}

TEST_F(LabelTable, WithoutAnImageOfAKnownClassIsNoSubset) {
  DatasetOptions skipping = options("file,label\na.jpg,elk\nb.jpg,elk\nbelow/c.jpg,ant\n");
  skipping.classes = {.names = {"dog", "cat"}, .origin = "a checkpoint", .on_unknown = OnUnknownClass::kSkip};
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(LabelledFiles{skipping}, NoSuchSubset);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("3 images of unknown classes are left out"));
}

TEST_F(LabelTable, SaysWhatItHolds) {
  for (const bool sets : {false, true}) {
    const DatasetOptions all = options(sets ? "file,labels\na.jpg,cat;dog\nb.jpg,\nbelow/c.jpg,dog\n"
                                            : "file,label\na.jpg,cat\nb.jpg,dog\nbelow/c.jpg,dog\n");
    ::testing::internal::CaptureStderr();
    datasets().get("imagenet")(all);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, AllOf(HasSubstr("labels.csv: 3 images of 2 classes"),
                           HasSubstr("labels.csv: all 3 images are train images, as asked")));
    EXPECT_EQ(log.find("2 classes, any number of them an image") != std::string::npos, sets) << log;
  }
}

TEST_F(LabelTable, PathsThatLeadOutAreTold) {
  EXPECT_THAT(refusal("file,label\n..,cat\n"), AllOf(HasSubstr("not below"), HasSubstr("'..' in line 2")));
  EXPECT_THAT(refusal("file,label\nbelow/..,cat\n"), AllOf(HasSubstr("not below"), HasSubstr("'below/..' in line 2")));
  EXPECT_THAT(refusal("file,label\n,cat\n"), AllOf(HasSubstr("not below"), HasSubstr("'' in line 2")));
  EXPECT_THAT(refusal("file,label\n..a.jpg,cat\nb..,dog\n"),
              AllOf(HasSubstr("are missing"), HasSubstr("'..a.jpg' in line 2, 'b..' in line 3")));
}

// A file may be an image by what is in it.
TEST_F(LabelTable, MayNameAFileWithoutTheNameOfAnImage) {
  write("photos/scan.bin");
  const LabelledFiles set = open("file,label\na.jpg,cat\nb.jpg,cat\nbelow/c.jpg,dog\nscan.bin,dog\n");
  ASSERT_EQ(set.size(), 4);
  EXPECT_EQ(set.read(3).value().where, temp_.file("photos/scan.bin"));
}

}  // namespace
}  // namespace trainyard::data::labelled_files_test
