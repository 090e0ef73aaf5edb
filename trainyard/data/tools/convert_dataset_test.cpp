// What the records and files of a converted data set hold, each feature read back by its name.
#include "trainyard/data/tools/convert_dataset.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/power_cut.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::convert_dataset_test {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

std::string jpeg_of(const Image& image) {
  const auto bytes = encode_jpeg(image);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string jpeg(int64_t index, int size = 32) {
  return jpeg_of(draw_shape(1, Subset::kTrain, index, size));
}

class ConvertDataset : public DatasetFolderTest {
 protected:
  ConvertedSamples convert(const std::string& to, int64_t samples_per_shard = 1000) {
    return convert_dataset({.name = "imagenet",
                            .from = temp_.file("from"),
                            .output = temp_.file(to),
                            .to = to,
                            .samples_per_shard = samples_per_shard});
  }
  std::vector<std::string> records(const std::string& name) {
    const auto file = files_.open_read(temp_.file(name));
    formats::TfRecordReader reader(*file);
    std::vector<std::string> all;
    for (std::string record; reader.next(record);) all.push_back(record);
    return all;
  }
};

TEST_F(ConvertDataset, TfRecordsOfTfRecordsHaveTheSameImagesLabelsAndBoxes) {
  const std::vector<std::string> images = {jpeg_of(smooth_image(24, 32)), jpeg_of(smooth_image(40, 20))};
  files_.make_directories(temp_.file("from"));
  {
    formats::TfRecordWriter writer(files_.open_write(temp_.file("from/train-00000-of-00001")));
    for (int64_t i = 0; i < 2; ++i) {
      formats::ExampleBuilder example;
      example.add_bytes(formats::kImageEncoded, images[static_cast<size_t>(i)]);
      example.add_int64(formats::kImageClassLabel, 7 + i);
      if (i == 1) {
        example.add_floats(formats::kImageBoxXMin, std::vector<float>{0.1F, 0.2F});
        example.add_floats(formats::kImageBoxYMin, std::vector<float>{0.3F, 0.4F});
        example.add_floats(formats::kImageBoxXMax, std::vector<float>{0.5F, 0.6F});
        example.add_floats(formats::kImageBoxYMax, std::vector<float>{0.7F, 0.8F});
      }
      writer.write(example.build());
    }
    writer.close();
  }
  EXPECT_EQ(convert("tfrecord").train, 2);
  const std::vector<std::string> converted = records("tfrecord/train-00000-of-00001");
  ASSERT_EQ(converted.size(), 2U);
  for (int64_t i = 0; i < 2; ++i) {
    const auto example = formats::ExampleView::parse(converted[static_cast<size_t>(i)]).value();
    EXPECT_EQ(example.bytes(formats::kImageEncoded).value(), images[static_cast<size_t>(i)]);
    EXPECT_EQ(example.int64(formats::kImageClassLabel).value(), 7 + i);
    EXPECT_EQ(example.int64(formats::kImageHeight).value(), i == 0 ? 24 : 40);
    EXPECT_EQ(example.int64(formats::kImageWidth).value(), i == 0 ? 32 : 20);
    EXPECT_EQ(example.bytes(formats::kImageFilename).value(), fmt::format("train_{:08}.jpg", i));
    EXPECT_EQ(example.has(formats::kImageBoxXMin), i == 1);
    if (i == 0) continue;
    EXPECT_THAT(example.float_list(formats::kImageBoxXMin).value(), ElementsAre(0.1F, 0.2F));
    EXPECT_THAT(example.float_list(formats::kImageBoxYMin).value(), ElementsAre(0.3F, 0.4F));
    EXPECT_THAT(example.float_list(formats::kImageBoxXMax).value(), ElementsAre(0.5F, 0.6F));
    EXPECT_THAT(example.float_list(formats::kImageBoxYMax).value(), ElementsAre(0.7F, 0.8F));
  }
}

TEST(ConversionTargets, AreAllFormsThatAreWritten) {
  EXPECT_THAT(conversion_targets(), ElementsAre("tfrecord", "webdataset", "folder", "cifar_binary", "coco"));
}

// Label 0 of ImageNet's records is the background, for which the other forms have no number.
TEST_F(ConvertDataset, RefusesSamplesOfTheBackground) {
  files_.make_directories(temp_.file("from"));
  formats::TfRecordWriter writer(files_.open_write(temp_.file("from/train-00000-of-00001")));
  formats::ExampleBuilder example;
  example.add_bytes(formats::kImageEncoded, jpeg(0));
  example.add_int64(formats::kImageClassLabel, 0);
  writer.write(example.build());
  writer.close();
  EXPECT_THAT(core::message_of([&] { convert("webdataset"); }, core::ErrorCode::kCorruptData),
              AllOf(HasSubstr("sample is background"), HasSubstr("expected a label of at least 1, got 0")));
}

TEST_F(ConvertDataset, ShardsHaveAtLeastOneSample) {
  write("from/train/ant/1.jpg", jpeg(0));
  EXPECT_EQ(core::message_of([&] { convert("tfrecord", 0); }),
            "samples_per_shard is out of range: expected at least 1, got 0");
  EXPECT_EQ(convert("tfrecord", 1).train, 1);
}

TEST_F(ConvertDataset, TfRecordsOfClassFoldersNameTheirClasses) {
  write("from/train/ant/1.jpg", jpeg(0));
  write("from/train/bee/1.jpg", jpeg(1));
  write("from/val/bee/2.jpg", jpeg(2));
  const ConvertedSamples samples = convert("tfrecord");
  EXPECT_EQ(samples.train, 2);
  EXPECT_EQ(samples.validation, 1);
  std::vector<std::string> said;
  for (const char* name : {"tfrecord/train-00000-of-00001", "tfrecord/validation-00000-of-00001"}) {
    for (const std::string& record : records(name)) {
      const auto example = formats::ExampleView::parse(record).value();
      said.push_back(fmt::format("{} {} {}", example.int64(formats::kImageClassLabel).value(),
                                 example.bytes(formats::kImageClassText).value(),
                                 example.bytes(formats::kImageFilename).value()));
    }
  }
  EXPECT_THAT(said,
              ElementsAre("1 ant train_00000000.jpg", "2 bee train_00000001.jpg", "2 bee validation_00000000.jpg"));
}

TEST_F(ConvertDataset, ShardsHaveAtMostWhatIsAskedForAndEqualParts) {
  for (int i = 0; i < 7; ++i) write(fmt::format("from/train/ant/{}.jpg", i), jpeg(i));
  write("from/val/ant/1.jpg", jpeg(8));
  convert("tfrecord", 3);
  EXPECT_EQ(records("tfrecord/train-00000-of-00003").size(), 2U);
  EXPECT_EQ(records("tfrecord/train-00001-of-00003").size(), 2U);
  EXPECT_EQ(records("tfrecord/train-00002-of-00003").size(), 3U);
  EXPECT_EQ(formats::ExampleView::parse(records("tfrecord/train-00002-of-00003")[2])
                .value()
                .bytes(formats::kImageEncoded)
                .value(),
            jpeg(6));
}

TEST_F(ConvertDataset, CifarsBatchesHaveALabelAndThreePlanes) {
  for (int i = 0; i < 5; ++i) write(fmt::format("from/train/{}/1.jpg", i), jpeg(i));
  write("from/val/3/1.jpg", jpeg(9));
  convert("cifar_binary");
  const std::string batch = files_.read_file(temp_.file("cifar_binary/data_batch_4.bin"));
  ASSERT_EQ(batch.size(), 3073U);
  EXPECT_EQ(batch[0], 3);
  const std::string file = jpeg(3);
  const Image image = decode_image(std::as_bytes(std::span(file))).value();
  for (const size_t pixel : {size_t{0}, size_t{500}, size_t{1023}}) {
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(static_cast<uint8_t>(batch[1 + 1024 * c + pixel]), image.pixels[3 * pixel + c]);
    }
  }
  EXPECT_EQ(files_.read_file(temp_.file("cifar_binary/test_batch.bin"))[0], 3);
  write("from/val/3/2.jpg", jpeg(9, 31));
  files_.remove_tree(temp_.file("cifar_binary"));
  EXPECT_EQ(core::problem_of([&] { convert("cifar_binary"); }), "sample does not fit into a CIFAR-10 batch");
  EXPECT_FALSE(files_.exists(temp_.file("cifar_binary"))) << "nothing is left of it";
}

// The batches have no EXIF data to turn images by.
TEST_F(ConvertDataset, CifarsBatchesHoldTurnedImages) {
  const std::string stored = jpeg_of(smooth_image(32, 32));
  const auto bytes = std::as_bytes(std::span(stored));
  const std::vector<std::byte> turned = with_exif({bytes.begin(), bytes.end()}, 6);
  for (int i = 0; i < 5; ++i) {
    write(fmt::format("from/train/{}/1.jpg", i), {reinterpret_cast<const char*>(turned.data()), turned.size()});
  }
  convert("cifar_binary");
  const std::string batch = files_.read_file(temp_.file("cifar_binary/data_batch_1.bin"));
  const Image shown = decode_image(turned, {}, {.exif_orientation = true}).value();
  ASSERT_NE(shown.pixels, decode_image(turned).value().pixels);
  for (size_t pixel = 0; pixel < 1024; ++pixel) {
    ASSERT_EQ(static_cast<uint8_t>(batch[1 + pixel]), shown.pixels[3 * pixel]) << pixel;
  }
}

// The pixels of a batch have no format of their own.
TEST_F(ConvertDataset, ImagesOfCifarsBatchesBecomePngFiles) {
  for (int i = 0; i < 5; ++i) write(fmt::format("from/train/{}/1.jpg", i), jpeg(i));
  convert("cifar_binary");
  convert_dataset(
      {.name = "cifar10", .from = temp_.file("cifar_binary"), .output = temp_.file("folder"), .to = "folder"});
  for (int i = 0; i < 5; ++i) {
    const std::string png = files_.read_file(temp_.file(fmt::format("folder/train/{0}/train_{0:08}.png", i)));
    const std::string file = jpeg(i);
    const Image image = decode_image(std::as_bytes(std::span(png))).value();
    EXPECT_EQ(image.height, 32);
    EXPECT_EQ(image.width, 32);
    EXPECT_EQ(image.pixels, decode_image(std::as_bytes(std::span(file))).value().pixels) << i;
  }
}

// They are lines of a file, and need not be what a folder can be called.
TEST_F(ConvertDataset, CifarsBatchesHaveTheNamesOfTheClasses) {
  files_.make_directories(temp_.file("from"));
  formats::TfRecordWriter writer(files_.open_write(temp_.file("from/train-00000-of-00001")));
  const std::vector<std::string> names = {"and/or", ".net", "crane", "crane", ""};
  for (int64_t i = 0; i < std::ssize(names); ++i) {
    formats::ExampleBuilder example;
    example.add_bytes(formats::kImageEncoded, jpeg(i));
    example.add_int64(formats::kImageClassLabel, 1 + i);
    if (const std::string& name = names[static_cast<size_t>(i)]; !name.empty()) {
      example.add_bytes(formats::kImageClassText, name);
    }
    writer.write(example.build());
  }
  writer.close();
  convert("cifar_binary");
  EXPECT_EQ(files_.read_file(temp_.file("cifar_binary/batches.meta.txt")), "and/or\n.net\ncrane\ncrane\n00004\n");
  EXPECT_THAT(datasets().get("cifar10")({.directory = temp_.file("cifar_binary")})->label_names(),
              ElementsAre("and/or", ".net", "crane", "crane", "00004"));
}

// The eleventh class has no image at first.
TEST_F(ConvertDataset, CifarsBatchesHoldTenClasses) {
  for (int i = 0; i < 10; ++i) write(fmt::format("from/train/{:02}/1.jpg", i), jpeg(i));
  files_.make_directories(temp_.file("from/train/10"));
  EXPECT_EQ(convert("cifar_binary").train, 10);
  EXPECT_EQ(datasets().get("cifar10")({.directory = temp_.file("cifar_binary")})->label_count(), 10);
  files_.remove_tree(temp_.file("cifar_binary"));
  write("from/train/10/1.jpg", jpeg(10));
  EXPECT_THAT(core::message_of([&] { convert("cifar_binary"); }),
              HasSubstr("expected 32 x 32 pixels, a label in [0, 10), got 32 x 32, label 10"));
  files_.remove_tree(temp_.file("from/train/10"));
  write("from/train/03/1.jpg", jpeg_of(smooth_image(40, 20)));
  EXPECT_THAT(core::message_of([&] { convert("cifar_binary"); }), HasSubstr("got 20 x 40, label 3"));
}

// The reader takes no empty batch.
TEST_F(ConvertDataset, CifarsBatchesNeedAnImageEach) {
  for (int i = 0; i < 3; ++i) write(fmt::format("from/train/{}/1.jpg", i), jpeg(i));
  EXPECT_THAT(core::message_of([&] { convert("cifar_binary"); }),
              AllOf(HasSubstr("too few images to fill CIFAR-10's batches"), HasSubstr("expected at least 5, got 3")));
  EXPECT_FALSE(files_.exists(temp_.file("cifar_binary")));
}

// What has its final name is on the medium.
TEST_F(ConvertDataset, APowerCutTakesNothingOfIt) {
  for (int i = 0; i < 5; ++i) write(fmt::format("from/train/{}/1.jpg", i), jpeg(i));
  write("from/val/3/1.jpg", jpeg(9));
  for (const std::string to : {"tfrecord", "webdataset", "folder", "cifar_binary"}) {
    core::PowerCut disk;
    const auto files = core::make_file_system(disk);
    convert_dataset(
        {.name = "imagenet", .from = temp_.file("from"), .output = temp_.file(to), .to = to, .files = files.get()});
    EXPECT_EQ(disk.cut(temp_.file(to)), 0) << to;
  }
}

// A sync takes milliseconds, and there may be a million images.
TEST_F(ConvertDataset, ClassFoldersAreSyncedTogether) {
  for (int i = 0; i < 20; ++i) write(fmt::format("from/train/ant/{}.jpg", i), jpeg(i));
  write("from/val/ant/1.jpg", jpeg(20));
  core::FaultInjector calls;
  const auto files = core::make_file_system(calls);
  convert_dataset({.name = "imagenet",
                   .from = temp_.file("from"),
                   .output = temp_.file("to"),
                   .to = "folder",
                   .files = files.get()});
  const std::vector<std::string> log = calls.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), "syncfs"), 1);
  EXPECT_LT(std::count(log.begin(), log.end(), "fsync"), 10) << "of the directories, and a list of names";
}

TEST_F(ConvertDataset, ClassFoldersHoldTheFilesOfTheirImages) {
  write("from/train/ant/1.jpg", jpeg(0));
  write("from/train/bee/1.jpg", jpeg(1));
  write("from/val/bee/2.jpg", jpeg(2));
  const ConvertedSamples samples = convert("folder");
  EXPECT_EQ(samples.train, 2);
  EXPECT_EQ(samples.validation, 1);
  EXPECT_EQ(files_.read_file(temp_.file("folder/train/ant/train_00000000.jpg")), jpeg(0));
  EXPECT_EQ(files_.read_file(temp_.file("folder/train/bee/train_00000001.jpg")), jpeg(1));
  EXPECT_EQ(files_.read_file(temp_.file("folder/val/bee/validation_00000000.jpg")), jpeg(2));
  EXPECT_THAT(files_.list(temp_.file("folder")), ElementsAre("train", "val"));
  EXPECT_THAT(files_.list(temp_.file("folder/val")), ElementsAre("ant", "bee")) << "a class without images, too";
}

}  // namespace
}  // namespace trainyard::data::convert_dataset_test
