// trainyard data convert: the names of classes come along from every form of a data set into every other one, and back.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/frontends/input/dataset_choice.h"

namespace trainyard::cli::class_names_convert_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;
using Names = std::vector<std::string>;

const Names kForms = {"tfrecord", "webdataset", "folder", "cifar_binary"};

// A data set as its reader finds it, without the name of the data set being told.
struct Content {
  Names samples;  // of both subsets, sorted: subset, label counted from 0, what its class is called, pixels
  Names classes;  // label_names()
  bool operator==(const Content&) const = default;
};

class ConvertClassNames : public ::testing::Test {
 protected:
  // 32 x 32 pixels, as CIFAR's; no two the same.
  std::string image() {
    const std::vector<std::byte> bytes = data::encode_png(data::noisy_image(32, 32, ++images_));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void write(const std::string& name, const std::string& bytes) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), bytes);
  }
  // Labels count from 1, as in TFRecords of ImageNet.
  void write_records(const std::string& name, const std::vector<std::pair<int64_t, std::string>>& classes) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    formats::TfRecordWriter writer(files_.open_write(temp_.file(name)));
    for (const auto& [label, text] : classes) {
      formats::ExampleBuilder example;
      example.add_bytes(formats::kImageEncoded, image());
      example.add_int64(formats::kImageClassLabel, label);
      if (!text.empty()) example.add_bytes(formats::kImageClassText, text);
      writer.write(example.build());
    }
    writer.close();
  }
  void convert(const std::string& from, const std::string& form, const std::string& to) {
    Arguments arguments = {"data", "convert", "--from=" + temp_.file(from), "--to=" + form,
                           "--output=" + temp_.file(to)};
    if (form == "tfrecord" || form == "webdataset") arguments.emplace_back("--samples_per_shard=3");
    const CommandResult result = run_command(arguments);
    ASSERT_EQ(result.code, kSuccess) << from << " to " << form << ": " << result.err;
  }
  Content content(const std::string& name) {
    const std::string directory = temp_.file(name);
    const std::string dataset_name = frontends::choose_dataset("", directory).name;
    Content content;
    for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
      const auto dataset =
          data::datasets().get(dataset_name)({.directory = directory,
                                              .subset = subset,
                                              .classes = {.names = content.classes, .origin = "the training images"}});
      const Names names = dataset->label_names();
      if (subset == data::Subset::kTrain) content.classes = names;
      for (int64_t i = 0; i < dataset->size(); ++i) {
        const data::Record record = dataset->read(i).value();
        const data::RecordImage decoded = data::record_image(record).value();
        const int64_t label = record.label - dataset->first_label();
        const std::string called = names.empty() ? record.label_text : names[static_cast<size_t>(label)];
        EXPECT_TRUE(record.label_text.empty() || record.label_text == called) << record.where;
        content.samples.push_back(fmt::format("{} {} {} ", data::subset_name(subset), label, called) +
                                  std::string(decoded.owner->pixels.begin(), decoded.owner->pixels.end()));
      }
    }
    std::sort(content.samples.begin(), content.samples.end());
    return content;
  }
  // Converts `source` to each form, each of these to each form, and back to the first.
  void expect_every_pair(const std::string& source, bool classes_are_listed) {
    const Content expected = content(source);
    const auto expect_same = [&](const std::string& name) {
      const Content found = content(name);
      EXPECT_TRUE(found.samples == expected.samples) << name;
      if (classes_are_listed) {
        EXPECT_EQ(found.classes, expected.classes) << name;
      }
    };
    for (const std::string& first : kForms) {
      const std::string from = source + "_" + first;
      convert(source, first, from);
      expect_same(from);
      for (const std::string& second : kForms) {
        convert(from, second, from + "_" + second);
        expect_same(from + "_" + second);
        convert(from + "_" + second, first, from + "_" + second + "_back");
        expect_same(from + "_" + second + "_back");
      }
    }
  }

  const core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  uint64_t images_ = 0;
};

TEST_F(ConvertClassNames, OfFoldersTravelThroughEveryPairOfForms) {
  const Names classes = {"10 cats", "B", "a'b \\ c", "cat", "\xc3\xa9t\xc3\xa9", "without images"};
  for (const std::string& name : classes) {
    files_.make_directories(temp_.file("photos/train/" + name));
    if (name == "without images") continue;
    for (int i = 0; i < 2; ++i) write(fmt::format("photos/train/{}/{}.png", name, i), image());
    if (name != "cat") write(fmt::format("photos/val/{}/0.png", name), image());
  }
  expect_every_pair("photos", true);
  Names sorted = classes;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(content("photos_webdataset").classes, sorted);
  EXPECT_EQ(files_.list(temp_.file("photos_webdataset_folder/train")), sorted);
  EXPECT_EQ(files_.list(temp_.file("photos_tfrecord_folder/val")), sorted);
  EXPECT_THAT(files_.list(temp_.file("photos_cifar_binary_folder")), ElementsAre("train", "val"))
      << "names that sort as the labels do need no list";
}

// Labels that do not sort as the names do.
TEST_F(ConvertClassNames, OfRecordsTravelThroughEveryPairOfForms) {
  write_records("records/train-00000-of-00001",
                {{1, "zebra"}, {2, "ant"}, {3, "mole"}, {1, "zebra"}, {3, "mole"}, {2, "ant"}});
  write_records("records/validation-00000-of-00001", {{3, "mole"}, {1, "zebra"}});
  expect_every_pair("records", false);
  EXPECT_THAT(content("records_tfrecord").classes, ElementsAre("zebra", "ant", "mole"));
  EXPECT_THAT(files_.list(temp_.file("records_folder/train")), ElementsAre("ant", "mole", "zebra"));
  EXPECT_EQ(files_.read_file(temp_.file("records_folder/classnames.txt")), "zebra\nant\nmole\n");
  EXPECT_EQ(files_.read_file(temp_.file("records_cifar_binary/batches.meta.txt")), "zebra\nant\nmole\n");
}

// A part of ImageNet: most labels have no image, and no name.
TEST_F(ConvertClassNames, KeepLabelsWithGapsBetweenThem) {
  write_records("part/train-00000-of-00001",
                {{7, "n01514668"}, {2, "n01443537"}, {7, "n01514668"}, {7, "n01514668"}, {2, "n01443537"}});
  write_records("part/validation-00000-of-00001", {{7, "n01514668"}});
  expect_every_pair("part", false);
  EXPECT_THAT(content("part_webdataset").classes, IsEmpty()) << "there are more classes than have names";
  EXPECT_THAT(files_.list(temp_.file("part_folder/train")), ElementsAre("n01443537", "n01514668"));
  EXPECT_EQ(content("part_folder").classes.size(), 1000U) << "as many as ImageNet's labels leave room for";
}

TEST_F(ConvertClassNames, NumbersStayNumbers) {
  files_.make_directories(temp_.file("tars"));
  for (const std::string subset : {"train", "val"}) {
    formats::TarWriter writer(files_.open_write(temp_.file("tars/" + subset + ".tar")));
    for (int i = 0; i < 6; ++i) {
      writer.write(fmt::format("{}.png", i), image());
      writer.write(fmt::format("{}.cls", i), fmt::format("{}", i % 3));
    }
    writer.close();
  }
  convert("tars", "folder", "folders");
  EXPECT_THAT(files_.list(temp_.file("folders/train")), ElementsAre("00000", "00001", "00002"));
  EXPECT_THAT(files_.list(temp_.file("folders")), ElementsAre("train", "val"));
  convert("tars", "webdataset", "again");
  EXPECT_EQ(content("again"), content("tars"));
  EXPECT_FALSE(files_.exists(temp_.file("again/classnames.txt")));
}

// Shards that are moved without the list still say what each sample is.
TEST_F(ConvertClassNames, AreInEachSampleOfAWebDataset) {
  for (const char* name : {"train/ant/0.png", "train/bee/0.png", "val/bee/0.png"})
    write(std::string("bugs/") + name, image());
  convert("bugs", "webdataset", "tars");
  files_.remove_file(temp_.file("tars/classnames.txt"));
  const auto dataset = data::datasets().get("imagenet")({.directory = temp_.file("tars")});
  const data::Record bee = dataset->read(1).value();
  EXPECT_EQ(bee.label, 1);
  EXPECT_EQ(bee.label_text, "bee");
  convert("tars", "folder", "folders");
  EXPECT_THAT(files_.list(temp_.file("folders/train")), ElementsAre("ant", "bee"));
}

TEST_F(ConvertClassNames, ThatNoFolderCanHaveAreChangedAndSaid) {
  write_records("records/train-00000-of-00001", {{1, "and/or"}, {2, "crane"}, {3, ".hidden"}, {4, "crane"}});
  const CommandResult result = run_command(
      {"data", "convert", "--from=" + temp_.file("records"), "--to=folder", "--output=" + temp_.file("folders")});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 classes get other names, which folders can have: 'and/or', 'crane', '.hidden'"));
  EXPECT_THAT(files_.list(temp_.file("folders/train")), ElementsAre("_hidden", "and_or", "crane 00001", "crane 00003"));
}

TEST_F(ConvertClassNames, AClassThatOnlyValHasFailsOrIsSkipped) {
  for (const char* name : {"train/ant/1.png", "train/bee/1.png", "val/ant/2.png", "val/wasp/2.png"}) {
    write(core::join_path("photos", name), image());
  }
  const Arguments arguments = {"data", "convert", "--from=" + temp_.file("photos"), "--to=folder",
                               "--output=" + temp_.file("out")};
  const CommandResult refused = run_command(arguments);
  EXPECT_NE(refused.code, kSuccess);
  EXPECT_THAT(refused.err, HasSubstr("'wasp'"));
  const CommandResult skipped =
      run_command(with_flags(arguments, {"--on_unknown_class=skip", "--output=" + temp_.file("skipped")}));
  ASSERT_EQ(skipped.code, kSuccess) << skipped.err;
  EXPECT_THAT(skipped.out, HasSubstr("wrote 2 training and 1 validation images"));
}

TEST_F(ConvertClassNames, OneLabelWithTwoNamesIsAnError) {
  write_records("records/train-00000-of-00001", {{1, "ant"}, {1, "bee"}, {1, "ant"}, {1, "ant"}, {1, "ant"}});
  for (const std::string& form : kForms) {
    const CommandResult result = run_command(
        {"data", "convert", "--from=" + temp_.file("records"), "--to=" + form, "--output=" + temp_.file("out")});
    EXPECT_EQ(result.code, kUsage) << form;
    EXPECT_THAT(result.err, HasSubstr("label 0 stands for two classes")) << form;
    EXPECT_FALSE(files_.exists(temp_.file("out"))) << form;
  }
}

// As many outputs as class folders make, and the same ones.
TEST_F(ConvertClassNames, DecideTheOutputsOfAModel) {
  for (const char* name : {"train/ant/0.png", "train/bee/0.png", "train/fly/0.png"})
    write(std::string("bugs/") + name, image());
  const models::DatasetInfo& info = models::find_dataset("imagenet");
  for (const char* form : {"folder", "tfrecord", "webdataset"}) {
    convert("bugs", form, form);
    const auto dataset = data::datasets().get("imagenet")({.directory = temp_.file(form)});
    EXPECT_THAT(dataset->label_names(), ElementsAre("ant", "bee", "fly")) << form;
    for (const auto& [classes, first] : {std::pair<int64_t, int64_t>{3, 0}, {10, 0}, {1001, 1}}) {
      EXPECT_EQ(dataset->read(0).value().label + frontends::label_offset(*dataset, info, classes), first) << form;
    }
    EXPECT_THROW(frontends::label_offset(*dataset, info, 2), core::Error) << form;
    const CommandResult run = run_command({"train", "--model=trivial", "--data_dir=" + temp_.file(form),
                                           "--batch_size=2", "--num_batches=2", "--num_classes=3", "--device=cpu"});
    EXPECT_EQ(run.code, kSuccess) << form << run.err;
  }
}

}  // namespace
}  // namespace trainyard::cli::class_names_convert_test
