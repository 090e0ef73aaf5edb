// COCO's JSON to TFRecords and back: nothing is lost.
#include "trainyard/data/tools/convert_coco.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/power_cut.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/drawn_boxes.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/data/tools/contact_sheet.h"
#include "trainyard/data/tools/verify_dataset.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::convert_coco_test {
namespace {

using core::ErrorCode, ::testing::HasSubstr;

// Boxes of an image keep their order, those of different images have another one in records.
CocoAnnotations by_image(CocoAnnotations annotations) {
  const auto place = [&](const CocoBox& box) {
    return std::find_if(annotations.images.begin(), annotations.images.end(),
                        [&](const CocoImage& image) { return image.id == box.image_id; });
  };
  std::stable_sort(annotations.boxes.begin(), annotations.boxes.end(),
                   [&](const CocoBox& a, const CocoBox& b) { return place(a) < place(b); });
  return annotations;
}

class ConvertCoco : public DatasetFolderTest {
 protected:
  ConvertedSamples convert(const std::string& from, const std::string& to, const std::string& output,
                           const std::string& name = "coco") {
    return convert_dataset(
        {.name = name, .from = from, .output = temp_.file(output), .to = to, .samples_per_shard = 2, .threads = 2});
  }
  // There and back.
  void expect_same(const std::string& from) {
    const ConvertedSamples records = convert(from, "tfrecord", "records");
    const ConvertedSamples json = convert(temp_.file("records"), "coco", "json");
    EXPECT_EQ(records.train, json.train);
    EXPECT_EQ(records.validation, json.validation);
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const auto before = open_coco({.directory = from, .subset = subset});
      const auto between = open_coco({.directory = temp_.file("records"), .subset = subset});
      const auto after = open_coco({.directory = temp_.file("json"), .subset = subset});
      EXPECT_EQ(between->annotations(), by_image(before->annotations()));
      EXPECT_EQ(after->annotations(), by_image(before->annotations()));
      ASSERT_EQ(between->size(), before->size());
      ASSERT_EQ(after->size(), before->size());
      for (int64_t i = 0; i < before->size(); ++i) {
        const Record a = before->read(i).value(), b = between->read(i).value();
        EXPECT_EQ(a.bytes, b.bytes);
        EXPECT_EQ(a.bytes, after->read(i).value().bytes);
        EXPECT_EQ(a.box_labels, b.box_labels);
        ASSERT_EQ(a.boxes.size(), b.boxes.size());
        for (size_t box = 0; box < a.boxes.size(); ++box) EXPECT_EQ(a.boxes[box].xmax, b.boxes[box].xmax);
      }
    }
  }
};

TEST_F(ConvertCoco, ThereAndBackIsTheSame) {
  write_small_coco(temp_.file("from"));
  expect_same(temp_.file("from"));
  EXPECT_EQ(core::code_of([&] { convert(temp_.file("from"), "tfrecord", "records"); }), ErrorCode::kInvalidArgument)
      << "the folder is not empty";
  const ConvertedSamples again = convert(temp_.file("records"), "tfrecord", "again");
  EXPECT_EQ(again.train, 3) << "with the image without boxes";
  EXPECT_EQ(files_.read_file(temp_.file("again/train-00001-of-00002")),
            files_.read_file(temp_.file("records/train-00001-of-00002")));
}

TEST_F(ConvertCoco, CocoTinyThereAndBackIsTheSame) {
  const auto folder = core::shared_data("coco_tiny");
  if (!folder) GTEST_SKIP() << core::missing_shared_data("coco_tiny");
  expect_same(*folder);
}

// What other programs read: the schema's lists, without the boxes that training leaves out.
TEST_F(ConvertCoco, RecordsFollowTheSchema) {
  write_small_coco(temp_.file("from"));
  convert(temp_.file("from"), "tfrecord", "records");
  const auto file = files_.open_read(temp_.file("records/train-00000-of-00002"));
  formats::TfRecordReader reader(*file);
  std::string record;
  ASSERT_TRUE(reader.next(record));
  auto example = formats::ExampleView::parse(record).value();
  EXPECT_EQ(example.bytes("image/source_id").value(), "70");
  EXPECT_EQ(example.bytes("image/filename").value(), "000000000070.jpg");
  EXPECT_EQ(example.bytes("image/format").value(), "jpeg");
  EXPECT_EQ(example.int64("image/height").value(), 100);
  EXPECT_EQ(example.int64("image/width").value(), 200);
  EXPECT_EQ(example.int64_list("image/object/class/label").value(), (std::vector<int64_t>{1, 90}));
  EXPECT_EQ(example.bytes_list("image/object/class/text").value(),
            (std::vector<std::string_view>{"person", "toothbrush"}));
  EXPECT_EQ(example.int64_list("image/object/is_crowd").value(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(example.float_list("image/object/area").value(), (std::vector<float>{20000, 7.1F}));
  EXPECT_EQ(example.float_list("image/object/bbox/ymax").value(), (std::vector<float>{1, 0.5075F}));
}

TEST_F(ConvertCoco, RefusesWhatWouldBeLost) {
  write_small_coco(temp_.file("from"));
  for (const char* to : {"webdataset", "folder", "cifar_binary"}) {
    EXPECT_THAT(core::message_of([&] { convert(temp_.file("from"), to, "to"); }), HasSubstr("hold boxes")) << to;
  }
  EXPECT_THAT(core::message_of([&] { convert(temp_.file("from"), "coco", "to", "imagenet"); }),
              HasSubstr("labelled images"));
  CocoAnnotations boxless = small_validation_annotations();
  boxless.boxes.clear();
  write_coco_subset(temp_.file("boxless"), "train2017", small_training_annotations());
  write_coco_subset(temp_.file("boxless"), "val2017", boxless);
  EXPECT_THAT(core::message_of([&] { convert(temp_.file("boxless"), "tfrecord", "to"); }, ErrorCode::kNotFound),
              HasSubstr("no image has boxes"));
  EXPECT_FALSE(files_.exists(temp_.file("to")));
  files_.remove_file(temp_.file("from/train2017/empty.jpg"));
  EXPECT_EQ(core::code_of([&] { convert(temp_.file("from"), "tfrecord", "to"); }), ErrorCode::kNotFound);
  EXPECT_FALSE(files_.exists(temp_.file("to")));
}

TEST_F(ConvertCoco, ImagesKeepTheirFoldersAndNames) {
  CocoAnnotations nested = small_training_annotations();
  nested.images[2].file_name = "below/" + nested.images[2].file_name;
  files_.make_directories(temp_.file("from/train2017/below"));
  write_coco_subset(temp_.file("from"), "train2017", nested);
  EXPECT_EQ(convert(temp_.file("from"), "coco", "to").validation, 0) << "there are none";
  EXPECT_EQ(files_.list(temp_.file("to/train2017")),
            (std::vector<std::string>{"000000000070.jpg", "below", "empty.jpg"}));
  EXPECT_TRUE(files_.exists(temp_.file("to/train2017/below/000000000005.jpg")));
  EXPECT_EQ(files_.list(temp_.file("to/annotations")), std::vector<std::string>{"instances_train2017.json"});

  CocoAnnotations twice = small_training_annotations();
  twice.images[1].file_name = twice.images[0].file_name;
  write_coco_subset(temp_.file("from"), "train2017", twice);
  const std::string refusal =
      core::message_of([&] { convert(temp_.file("from"), "coco", "other"); }, ErrorCode::kCorruptData);
  EXPECT_THAT(refusal, HasSubstr("two images have the same file name"));
  EXPECT_THAT(refusal, HasSubstr("got 000000000070.jpg"));
  EXPECT_FALSE(files_.exists(temp_.file("other")));
}

// What has its final name is on the medium.
TEST_F(ConvertCoco, APowerCutTakesNothingOfIt) {
  write_small_coco(temp_.file("from"));
  for (const std::string to : {"tfrecord", "coco"}) {
    core::PowerCut disk;
    const auto files = core::make_file_system(disk);
    convert_dataset(
        {.name = "coco", .from = temp_.file("from"), .output = temp_.file(to), .to = to, .files = files.get()});
    EXPECT_EQ(disk.cut(temp_.file(to)), 0) << to;
  }
}

TEST_F(ConvertCoco, ImagesAreSyncedTogether) {
  write_small_coco(temp_.file("from"));
  core::FaultInjector calls;
  const auto files = core::make_file_system(calls);
  convert_dataset(
      {.name = "coco", .from = temp_.file("from"), .output = temp_.file("to"), .to = "coco", .files = files.get()});
  const std::vector<std::string> log = calls.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), "syncfs"), 1);
  // Two lists of annotations, each with its directory; the new directory and the one that it is in.
  EXPECT_EQ(std::count(log.begin(), log.end(), "fsync"), 6);
}

TEST_F(ConvertCoco, VerifyFindsBadImagesAndOtherSizes) {
  write_small_coco(temp_.file("from"));
  std::vector<std::string> bad;
  const auto verify = [&](const std::string& directory) {
    bad.clear();
    return verify_dataset(
        {.name = "coco", .directory = directory, .threads = 2, .on_bad = [&](const core::Error& error) {
           bad.emplace_back(error.what());
         }});
  };
  VerifiedSamples found = verify(temp_.file("from"));
  EXPECT_EQ(found.train, 2);
  EXPECT_EQ(found.validation, 1);
  EXPECT_EQ(found.bad, 0);
  write("from/train2017/000000000070.jpg", jpeg_text(smooth_image(100, 190)));
  write("from/val2017/000000000008.jpg", "no image");
  found = verify(temp_.file("from"));
  EXPECT_EQ(found.bad, 2);
  EXPECT_THAT(bad.at(0), HasSubstr("another size than its annotations say"));
  EXPECT_THAT(bad.at(0), HasSubstr("expected 200 x 100, got 190 x 100"));
  convert(temp_.file("from"), "tfrecord", "records");
  EXPECT_EQ(verify(temp_.file("records")).bad, 2) << "shard by shard";
}

TEST_F(ConvertCoco, VerifyReadsTheOtherShardsOfADamagedOne) {
  write_small_coco(temp_.file("from"));
  convert(temp_.file("from"), "tfrecord", "records");
  const std::string damaged = "records/train-00000-of-00002";
  write(damaged, files_.read_file(temp_.file(damaged)).substr(0, 100));
  std::vector<std::string> bad;
  const VerifiedSamples found =
      verify_dataset({.name = "coco", .directory = temp_.file("records"), .on_bad = [&](const core::Error& error) {
                        bad.emplace_back(error.what());
                      }});
  EXPECT_EQ(found.train, 1) << "of the two images of the other shard, one has boxes";
  EXPECT_EQ(found.validation, 1);
  EXPECT_EQ(found.bad, 1);
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_THAT(bad[0], HasSubstr(temp_.file(damaged)));
}

TEST_F(ConvertCoco, ContactSheetsShowBoxes) {
  write_small_coco(temp_.file("from"));
  const auto set = open_coco({.directory = temp_.file("from"), .subset = Subset::kValidation});
  ContactSheetOptions options{.transform = ssd300_input(false), .count = 1, .order = {.shuffle = false}};
  const auto transform = transforms().get("coco")(options.transform);
  const ContactSheet sheet = make_contact_sheet(*set, *transform, options);
  EXPECT_EQ(sheet.cells.at(0).box_labels, std::vector<int64_t>{1});
  // The box of the image of 64 x 48, scaled to 300 x 225 in the middle of its field, and to 300 x 300 beside it.
  const auto pixel = [&](int y, int x) {
    const uint8_t* at = sheet.image.pixels.data() + 3 * (static_cast<size_t>(y) * sheet.image.width + x);
    return std::array<uint8_t, 3>{at[0], at[1], at[2]};
  };
  const auto edge = pixel(4 + 300 / 2, 4 + static_cast<int>(4.5 / 64 * 300));
  EXPECT_EQ(pixel(4 + 37 + static_cast<int>(20 / 48.0 * 225), 4 + static_cast<int>(4.5 / 64 * 300)), edge);
  EXPECT_EQ(pixel(4 + 300 / 2, 4 + 300 + static_cast<int>(4.5 / 64 * 300)), edge);
  Image picture = flat_image(20, 20, 9);
  draw_boxes(picture, {5, 5, 10, 10}, {{.box = {-1, -1, 2, 2}, .label = 3, .text = "a"}, {.box = {NAN, 0, 1, 1}}});
  for (int i = 0; i < 20; ++i) {
    for (const auto& [y, x] : {std::pair{4, i}, std::pair{15, i}, std::pair{i, 4}, std::pair{i, 15}}) {
      EXPECT_EQ(picture.pixels[3 * (static_cast<size_t>(y) * 20 + x)], 9) << "nothing outside of the field";
    }
  }
  EXPECT_NE(picture.pixels[3 * (5 * 20 + 5)], 9);
}

TEST_F(ConvertCoco, EndsWhereItIsStopped) {
  write_small_coco(temp_.file("from"));
  core::StopSource stop;
  stop.request_stop(core::StopReason::kRequested, "enough");
  for (const char* to : {"tfrecord", "coco"}) {
    EXPECT_EQ(
        core::code_of([&] {
          convert_dataset(
              {.name = "coco", .from = temp_.file("from"), .output = temp_.file(to), .to = to, .stop = stop.token()});
        }),
        ErrorCode::kCancelled)
        << to;
    EXPECT_FALSE(files_.exists(temp_.file(to))) << to;
  }
}

}  // namespace
}  // namespace trainyard::data::convert_coco_test
