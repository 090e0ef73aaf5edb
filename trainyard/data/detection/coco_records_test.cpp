#include "trainyard/data/detection/coco_records.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::coco_records_test {
namespace {

using formats::ExampleBuilder, formats::ExampleView;
using ::testing::ElementsAre, ::testing::HasSubstr;

constexpr const char* kExactBoxes = "image/object/coco";

// An image of 64 x 48 pixels without boxes.
ExampleBuilder image_of(const std::string& id, int64_t width = 64, int64_t height = 48) {
  ExampleBuilder example;
  example.add_bytes(formats::kImageSourceId, id);
  example.add_int64(formats::kImageHeight, height);
  example.add_int64(formats::kImageWidth, width);
  return example;
}

core::Result<CocoRecord> parse(const ExampleBuilder& example) {
  const std::string bytes = example.build();
  return parse_coco_example(ExampleView::parse(bytes).value());
}

// "" where there is no error.
std::string refusal(const ExampleBuilder& example) {
  const auto record = parse(example);
  return record.ok() ? "" : record.error().what();
}

std::string refusal_of_exact(const std::string& box) {
  ExampleBuilder example = image_of("70");
  const std::vector<std::string> boxes = {"3 18 0 0 0 1 1 1", box};
  example.add_bytes_list(kExactBoxes, boxes);
  return refusal(example);
}

// Two boxes of the schema's four lists.
void add_sides(ExampleBuilder& example) {
  example.add_floats(formats::kImageBoxYMin, std::vector<float>{0.25F, 0.5F});
  example.add_floats(formats::kImageBoxXMin, std::vector<float>{0.125F, 0});
  example.add_floats(formats::kImageBoxYMax, std::vector<float>{0.75F, 1});
  example.add_floats(formats::kImageBoxXMax, std::vector<float>{0.5F, 1});
}

TEST(CocoRecords, ExactBoxesAreReadAsTheyAre) {
  ExampleBuilder example = image_of("70");
  const std::vector<std::string> texts = {"900 18 0 10.1 -20.2 30.3 40.4 1000.123456789", "12 1 1 0 0 64 48 5e-3"};
  example.add_bytes_list(kExactBoxes, texts);
  const CocoRecord record = parse(example).value();
  EXPECT_TRUE(record.numbered);
  EXPECT_EQ(record.image, (CocoImage{70, "000000000070.jpg", 64, 48}));
  EXPECT_THAT(record.boxes, ElementsAre(CocoBox{900, 70, 18, 10.1, -20.2, 30.3, 40.4, 1000.123456789, false},
                                        CocoBox{12, 70, 1, 0, 0, 64, 48, 0.005, true}));
}

TEST(CocoRecords, ExactBoxesThatAreMalformedAreNamed) {
  EXPECT_EQ(refusal_of_exact("4 18 1 1 2 3 4 5"), "");
  for (const std::string box :
       {"4 18 2 1 2 3 4 5", "4 18 -1 1 2 3 4 5", "4 18 0 1 2 3 4", "4 18 0 1 2 3 4 5 6", "4 18 0 1 2 3 4 nan",
        "4 18 0 inf 2 3 4 5", "4.5 18 0 1 2 3 4 5", "4 18 0 1 2 3 4 5 ", ""}) {
    EXPECT_THAT(refusal_of_exact(box),
                HasSubstr("image/object/coco is malformed: expected id category crowd x y width height area"))
        << box;
  }
  EXPECT_THAT(refusal_of_exact("4 18 x"), HasSubstr("got 4 18 x"));
  EXPECT_THAT(refusal_of_exact("4 12 0 1 2 3 4 5"), HasSubstr("is not a category of COCO's: expected one of its 80 ids "
                                                              "in [1, 90], got 12"));
}

TEST(CocoRecords, AreasAndCrowdsMayBeMissing) {
  for (const bool empty_lists : {false, true}) {
    ExampleBuilder example = image_of("70");
    add_sides(example);
    example.add_int64_list(formats::kObjectClassLabel, std::vector<int64_t>{18, 1});
    if (empty_lists) {
      example.add_int64_list(formats::kObjectIsCrowd, {});
      example.add_floats(formats::kObjectArea, {});
    }
    const CocoRecord record = parse(example).value();
    EXPECT_FALSE(record.numbered);
    EXPECT_THAT(record.boxes, ElementsAre(CocoBox{0, 70, 18, 8, 12, 24, 24, 24 * 24, false},
                                          CocoBox{0, 70, 1, 0, 24, 64, 24, 64 * 24, false}))
        << empty_lists;
  }
}

TEST(CocoRecords, ListsOfTheSchemaBelongTogether) {
  ExampleBuilder no_labels = image_of("70");
  add_sides(no_labels);
  EXPECT_THAT(refusal(no_labels), HasSubstr("image/object/class/label"));
  ExampleBuilder one_label = image_of("70");
  add_sides(one_label);
  one_label.add_int64_list(formats::kObjectClassLabel, std::vector<int64_t>{18});
  EXPECT_THAT(refusal(one_label), HasSubstr("has another length than its fellows: expected 2 values, got 1"));
  ExampleBuilder one_side = image_of("70");
  one_side.add_floats(formats::kImageBoxYMin, std::vector<float>{0.25F});
  EXPECT_THAT(refusal(one_side), HasSubstr("image/object/bbox/xmin is missing: expected four lists of sides"));
  ExampleBuilder uneven = image_of("70");
  uneven.add_floats(formats::kImageBoxYMin, std::vector<float>{0.25F, 0});
  uneven.add_floats(formats::kImageBoxXMin, std::vector<float>{0.25F});
  EXPECT_THAT(refusal(uneven), HasSubstr("expected 2 values, got 1"));
  ExampleBuilder beyond = image_of("70");
  beyond.add_floats(formats::kImageBoxYMin, std::vector<float>{-0.25F});
  EXPECT_THAT(refusal(beyond), HasSubstr("expected a part of the image in [0, 1], got -0.25"));
}

TEST(CocoRecords, SidesIdsAndNamesOfImagesAreChecked) {
  constexpr int64_t kMost = 1 << 20;
  EXPECT_EQ(parse(image_of("70", kMost, 1)).value().image, (CocoImage{70, "000000000070.jpg", kMost, 1}));
  EXPECT_THAT(refusal(image_of("70", kMost + 1, 1)),
              HasSubstr("image/width is out of range: expected 1 to 1048576 pixels, got 1048577"));
  EXPECT_THAT(refusal(image_of("70", 1, 0)),
              HasSubstr("image/height is out of range: expected 1 to 1048576 pixels, got 0"));
  for (const std::string id : {"", "70a", "0x7", "9223372036854775808"}) {
    EXPECT_THAT(refusal(image_of(id)), HasSubstr("expected the id of the image, got '" + id + "'"));
  }
  ExampleBuilder named = image_of("70");
  named.add_bytes(formats::kImageFilename, "below/a.png");
  EXPECT_EQ(parse(named).value().image.file_name, "below/a.png");
  ExampleBuilder unnamed = image_of("-5");
  unnamed.add_bytes(formats::kImageFilename, "");
  EXPECT_EQ(parse(unnamed).value().image, (CocoImage{-5, "-00000000005.jpg", 64, 48}));
  ExampleBuilder outside = image_of("70");
  outside.add_bytes(formats::kImageFilename, "../a.png");
  EXPECT_THAT(refusal(outside), HasSubstr("expected a name inside of the folder of images, got '../a.png'"));
}

TEST(CocoRecords, AnExampleSaysFormatAndClasses) {
  const CocoImage image{70, "a.png", 64, 48};
  const std::vector<CocoBox> boxes = {{4, 70, 18, 8, 12, 16, 24, 5, true}, {5, 70, 90, 0, 0, 64, 48, 7, false}};
  const std::vector<CocoCategory> categories = {{1, "person", ""}, {90, "toothbrush", ""}};
  for (const std::string begin : {"\x89PNG", "\xff\xd8"}) {
    const std::string bytes = coco_example(image, boxes, categories, begin + "image");
    const ExampleView example = ExampleView::parse(bytes).value();
    EXPECT_EQ(example.bytes("image/format").value(), begin == "\x89PNG" ? "png" : "jpeg");
    EXPECT_EQ(example.bytes("image/encoded").value(), begin + "image");
    EXPECT_EQ(example.bytes_list("image/object/class/text").value(), (std::vector<std::string_view>{"", "toothbrush"}));
    EXPECT_THAT(example.float_list("image/object/bbox/ymin").value(), ElementsAre(0.25F, 0.0F));
    EXPECT_THAT(example.float_list("image/object/bbox/xmin").value(), ElementsAre(0.125F, 0.0F));
    EXPECT_THAT(example.float_list("image/object/bbox/ymax").value(), ElementsAre(0.75F, 1.0F));
    EXPECT_THAT(example.float_list("image/object/bbox/xmax").value(), ElementsAre(0.375F, 1.0F));
    EXPECT_EQ(parse_coco_example(example).value().boxes, boxes);
  }
}

class CocoShards : public DatasetFolderTest {};

// More than are read at a time, of which the last are fewer.
TEST_F(CocoShards, ManyRecordsKeepTheirOrder) {
  constexpr int kRecords = 600;
  std::vector<std::string> shards;
  for (int shard = 0; shard < 2; ++shard) {
    shards.push_back(temp_.file(fmt::format("train-{:05}-of-00002", shard)));
    formats::TfRecordWriter writer(files_.open_write(shards.back()));
    for (int i = shard * kRecords / 2; i < (shard + 1) * kRecords / 2; ++i) {
      ExampleBuilder example = image_of(fmt::format("{}", 7 * i));
      add_sides(example);
      example.add_int64_list(formats::kObjectClassLabel, std::vector<int64_t>{18, 1});
      example.add_bytes(formats::kImageEncoded, "image");
      writer.write(example.build());
    }
    writer.close();
  }
  const auto set = open_coco_records(shards, Subset::kTrain, files_);
  ASSERT_EQ(set->size(), kRecords);
  ASSERT_EQ(set->annotations().images.size(), size_t{kRecords});
  for (int i = 0; i < kRecords; ++i) ASSERT_EQ(set->image(i).id, 7 * i);
  EXPECT_EQ(set->annotations().boxes.back().id, 2 * kRecords);
  EXPECT_THAT(set->read(kRecords - 1).value().where, HasSubstr("train-00001-of-00002 at offset "));
  const std::vector<CocoCategory>& categories = set->annotations().categories;
  ASSERT_EQ(categories.size(), 80U);
  EXPECT_EQ(categories.front(), (CocoCategory{1, "person", ""}));
  EXPECT_EQ(categories.back(), (CocoCategory{90, "toothbrush", ""}));
}

TEST(CocoRecords, ListsWithoutTheFirstSideHaveAnotherLength) {
  ExampleBuilder example = image_of("70");
  example.add_floats(formats::kImageBoxXMin, std::vector<float>{0.125F, 0});
  EXPECT_THAT(refusal(example), HasSubstr("xmin has another length than its fellows: expected 0 values, got 2"));
}

}  // namespace
}  // namespace trainyard::data::coco_records_test
