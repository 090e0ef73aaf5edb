#include "trainyard/data/detection/coco_dataset.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/datasets/recognise_tfrecords.h"
#include "trainyard/data/detection/coco_form.h"
#include "trainyard/data/detection/coco_records.h"
#include "trainyard/data/detection/record_head.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::coco_dataset_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

// An example in the schema, as create_coco_tf_record.py of TensorFlow's object detection writes it.
struct SchemaRecord {
  std::string id = "70";
  std::vector<float> ymin = {0.25F, 0.5F}, xmin = {0, 0.1F}, ymax = {0.75F, 1}, xmax = {0.5F, 1};
  std::vector<int64_t> labels = {18, 1}, crowds = {0, 1};
  std::vector<float> areas = {12.5F, 30};
  int64_t width = 64, height = 48;

  std::string build() const {
    formats::ExampleBuilder example;
    example.add_int64(formats::kImageHeight, height);
    example.add_int64(formats::kImageWidth, width);
    example.add_bytes(formats::kImageEncoded, jpeg_text(noisy_image(48, 64)));
    example.add_bytes(formats::kImageSourceId, id);
    example.add_bytes("image/key/sha256", std::string(64, 'a'));
    if (ymin.empty()) return example.build();  // as the original: an image without boxes has no lists
    example.add_floats(formats::kImageBoxYMin, ymin);
    example.add_floats(formats::kImageBoxXMin, xmin);
    example.add_floats(formats::kImageBoxYMax, ymax);
    example.add_floats(formats::kImageBoxXMax, xmax);
    example.add_int64_list(formats::kObjectClassLabel, labels);
    example.add_int64_list(formats::kObjectIsCrowd, crowds);
    example.add_floats(formats::kObjectArea, areas);
    return example.build();
  }
};

class CocoDatasetTest : public DatasetFolderTest {
 protected:
  std::unique_ptr<CocoDataset> open(Subset subset = Subset::kTrain) {
    return open_coco({.directory = temp_.path(), .subset = subset});
  }
  std::string refusal(ErrorCode code, Subset subset = Subset::kTrain) {
    return core::message_of([&] { static_cast<void>(open(subset)); }, code);
  }
  void write_records(const std::string& name, const std::vector<std::string>& records) {
    formats::TfRecordWriter writer(files_.open_write(temp_.file(name)));
    for (const std::string& record : records) writer.write(record);
    writer.close();
  }
};

TEST_F(CocoDatasetTest, SamplesAreTheImagesWithBoxes) {
  write_small_coco(temp_.path());
  const auto set = open();
  EXPECT_EQ(set->annotations(), small_training_annotations()) << "metrics see all";
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->image(0).id, 70);
  EXPECT_EQ(set->image(1).id, 5);
  EXPECT_EQ(set->label_count(), 81);
  EXPECT_EQ(set->label_names().front(), "person");
  const Record record = set->read(0).value();
  EXPECT_THAT(record.box_labels, ElementsAre(1, 80)) << "a crowd is a box; one of no area is none";
  EXPECT_EQ(record.boxes[1].xmin, static_cast<float>(150.5 / 200));
  EXPECT_EQ(record.boxes[1].ymin, static_cast<float>(20.25 / 100));
  EXPECT_EQ(record.boxes[1].xmax, 1.0F);
  EXPECT_EQ(record.boxes[1].ymax, static_cast<float>((20.25 + 30.5) / 100));
  const std::string bytes = files_.read_file(temp_.file("train2017/000000000070.jpg"));
  ASSERT_EQ(record.bytes.size(), bytes.size());
  EXPECT_EQ(std::memcmp(record.bytes.data(), bytes.data(), bytes.size()), 0);
  EXPECT_THAT(set->read(1).value().box_labels, ElementsAre(17)) << "a box that leaves the image is none";
  EXPECT_EQ(open(Subset::kValidation)->image(0).id, 8);
}

TEST_F(CocoDatasetTest, MissingImagesAreBadSamples) {
  write_small_coco(temp_.path());
  files_.remove_file(temp_.file("train2017/000000000070.jpg"));
  const auto set = open();
  ASSERT_EQ(set->size(), 2);
  const auto record = set->read(0);
  ASSERT_FALSE(record.ok());
  EXPECT_THAT(record.error().what(), HasSubstr("an image of the annotations is missing"));
  EXPECT_THAT(record.error().what(), HasSubstr("000000000070.jpg"));
  EXPECT_TRUE(set->read(1).ok());
  files_.remove_tree(temp_.file("train2017"));
  files_.make_directories(temp_.file("train2017"));
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("none of them"));
  files_.remove_tree(temp_.file("train2017"));
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("no folder of images"));
}

TEST_F(CocoDatasetTest, ImagesMayBeInFoldersBelow) {
  CocoAnnotations nested = small_training_annotations();
  for (CocoImage& image : nested.images) image.file_name = "below/" + image.file_name;
  files_.make_directories(temp_.file("train2017/below"));
  write_coco_subset(temp_.path(), "train2017", nested);
  ::testing::internal::CaptureStderr();
  const auto set = open();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("instances_train2017.json: 2 of 5 boxes have no area"), Not(HasSubstr("missing"))));
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->read(1).value().where, temp_.file("train2017/below/000000000005.jpg"));
  files_.remove_file(temp_.file("train2017/below/empty.jpg"));
  ::testing::internal::CaptureStderr();
  open();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("train2017: 1 of 3 images of the annotations are missing"));
}

TEST_F(CocoDatasetTest, RefusesCategoriesThatAreNotCocos) {
  CocoAnnotations other = small_training_annotations();
  other.categories.push_back({12, "street sign", ""});
  other.boxes[0].category_id = 12;
  write_coco_subset(temp_.path(), "train2017", other);
  EXPECT_THAT(refusal(ErrorCode::kCorruptData), HasSubstr("box 900 is of a category that is not COCO's"));
}

TEST_F(CocoDatasetTest, FindsItsForms) {
  EXPECT_FALSE(holds_coco(files_, temp_.path()));
  EXPECT_FALSE(holds_coco(files_, temp_.file("none")));
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("annotations, train2017 and val2017"));
  write_coco_subset(temp_.path(), "val2014", small_validation_annotations());
  EXPECT_TRUE(holds_coco(files_, temp_.path()));
  EXPECT_EQ(open(Subset::kValidation)->size(), 1) << "of the only year";
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("instances_train2017.json"));
  write_coco_subset(temp_.path(), "val2015", small_validation_annotations());
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument, Subset::kValidation), HasSubstr("2014, 2015"));
  write_coco_subset(temp_.path(), "val2017", small_validation_annotations());
  EXPECT_EQ(open(Subset::kValidation)->size(), 1);
  files_.make_directories(temp_.file("images"));
  files_.rename(temp_.file("val2017"), temp_.file("images/val2017"));
  EXPECT_EQ(open(Subset::kValidation)->size(), 1) << "below images";
  for (const bool division : {true, false}) {
    DatasetOptions options{.directory = temp_.path(), .subset = Subset::kValidation};
    options.requires_division = division;
    if (!division) options.index_directory = temp_.path();
    EXPECT_EQ(core::code_of([&] { static_cast<void>(open_coco(options)); }), ErrorCode::kInvalidArgument);
  }
}

TEST_F(CocoDatasetTest, AnnotationsMayHaveNoYear) {
  write_coco_subset(temp_.path(), "train", small_training_annotations());
  EXPECT_TRUE(holds_coco(files_, temp_.path()));
  EXPECT_EQ(open()->size(), 2);
}

TEST_F(CocoDatasetTest, RecordsMayHaveEachNameOfTheirSubset) {
  for (const std::string begin :
       {"validation", "coco_validation", "coco_validation.record", "coco_val", "coco_val.record"}) {
    const std::string name = begin + "-00000-of-00001";
    write_records(name, {SchemaRecord{}.build()});
    EXPECT_EQ(open(Subset::kValidation)->size(), 1) << name;
    EXPECT_EQ(holds_coco(files_, temp_.path()), name.starts_with("coco_val")) << name;
    files_.remove_file(temp_.file(name));
  }
  for (const std::string name : {"coco_val.tar", "other-00000-of-00001", "coco_train"}) write(name);
  EXPECT_FALSE(holds_coco(files_, temp_.path()));
  write("coco_train-00000-of-00001");
  EXPECT_TRUE(holds_coco(files_, temp_.path()));
}

TEST_F(CocoDatasetTest, RefusesWhatHasNoBoxesOrNoUse) {
  write("train/cat/1.jpg");
  EXPECT_THAT(refusal(ErrorCode::kNotFound),
              AllOf(HasSubstr("holds no COCO data set"), HasSubstr("got images without boxes")));
  CocoAnnotations none = small_training_annotations();
  none.boxes.clear();
  write_coco_subset(temp_.path(), "train2017", none);
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("got 3 images and 0 boxes"));
  EXPECT_THAT(core::message_of([&] {
                static_cast<void>(open_coco({.directory = temp_.path(), .labels_csv = temp_.file("labels.csv")}));
              }),
              HasSubstr("--labels_csv has no use"));
}

TEST(CocoBoxes, AreUsableInsideOfTheirImage) {
  const CocoImage image{1, "a.jpg", 20, 10};
  const auto usable = [&](double x, double y, double width, double height) {
    return is_usable({.x = x, .y = y, .width = width, .height = height}, image);
  };
  EXPECT_TRUE(usable(0, 0, 20, 10));
  EXPECT_TRUE(usable(19.5, 9.5, 0.5, 0.5));
  EXPECT_FALSE(usable(-0.5, 0, 5, 5));
  EXPECT_FALSE(usable(0, -0.5, 5, 5));
  EXPECT_FALSE(usable(15.5, 0, 5, 5));
  EXPECT_FALSE(usable(0, 5.5, 5, 5));
  EXPECT_FALSE(usable(0, 0, 0, 5));
  EXPECT_FALSE(usable(0, 0, 5, 0));
}

TEST_F(CocoDatasetTest, ReadsRecordsOfTheSchema) {
  SchemaRecord without_boxes{.id = "9"};
  without_boxes.ymin = {};
  for (const std::string name :
       {"train-00000-of-00001", "coco_train-00000-of-00001", "coco_train.record-00000-of-00001"}) {
    write_records(name, {SchemaRecord{}.build(), without_boxes.build(), SchemaRecord{.id = "8"}.build()});
    EXPECT_EQ(recognise_tfrecords(files_, temp_.file(name)), "coco");
    const auto set = open();
    ASSERT_EQ(set->size(), 2) << name;
    EXPECT_EQ(set->annotations().images.size(), 3U);
    EXPECT_EQ(set->annotations().categories.size(), 80U);
    EXPECT_EQ(set->image(0), (CocoImage{70, "000000000070.jpg", 64, 48}));
    EXPECT_EQ(set->image(1).id, 8);
    const std::vector<CocoBox>& boxes = set->annotations().boxes;
    ASSERT_EQ(boxes.size(), 4U);
    EXPECT_EQ(boxes[0], (CocoBox{1, 70, 18, 0, 12, 32, 24, 12.5, false}));
    EXPECT_TRUE(boxes[1].crowd);
    EXPECT_EQ(boxes[3].id, 4) << "records without ids number the boxes";
    const Record record = set->read(0).value();
    EXPECT_THAT(record.box_labels, ElementsAre(17, 1));
    EXPECT_EQ(record.boxes[1].xmin, 0.1F) << "the same float";
    EXPECT_EQ(record.boxes[1].xmax, 1.0F);
    const auto named = open_coco({.directory = temp_.file("*-of-*")});
    EXPECT_EQ(named->size(), 2);
    files_.remove_file(temp_.file(name));
  }
}

TEST_F(CocoDatasetTest, BadRecordsAreBadSamples) {
  std::vector<SchemaRecord> bad(9);
  bad[0].id = "x7";
  bad[1].ymax = {0.5F};
  bad[2].xmin = {std::numeric_limits<float>::quiet_NaN(), 0};
  bad[3].xmax = {1.5F, 1};
  bad[4].labels = {12, 1};
  bad[5].labels = {1};
  bad[6].width = 0;
  bad[7].areas = {1, std::numeric_limits<float>::infinity()};
  bad[8].crowds = {0, 1, 0};
  const std::vector<std::string> names = {"source_id",   "bbox/ymax",   "bbox/xmin", "bbox/xmax", "class/label",
                                          "class/label", "image/width", "area",      "is_crowd"};
  std::vector<std::string> records = {SchemaRecord{.id = "1"}.build()};
  for (const SchemaRecord& each : bad) records.push_back(each.build());
  records.emplace_back("no example");
  write_records("train-00000-of-00001", records);
  const auto set = open();
  ASSERT_EQ(set->size(), 11);
  EXPECT_TRUE(set->read(0).ok());
  for (int64_t i = 1; i < set->size(); ++i) {
    EXPECT_TRUE(set->unreadable(i));
    const auto record = set->read(i);
    ASSERT_FALSE(record.ok()) << i;
    EXPECT_EQ(record.error().code(), ErrorCode::kCorruptData);
    EXPECT_THAT(record.error().what(), HasSubstr("train-00000-of-00001 at offset"));
    if (i <= std::ssize(names)) {
      EXPECT_THAT(record.error().what(), HasSubstr(names[static_cast<size_t>(i - 1)]));
    }
    EXPECT_EQ(core::code_of([&] { static_cast<void>(set->image(i)); }), ErrorCode::kCorruptData);
  }
  write_records("train-00000-of-00001", {SchemaRecord{}.build(), SchemaRecord{}.build()});
  EXPECT_THAT(refusal(ErrorCode::kCorruptData), HasSubstr("two records are of images of one id"));
}

// Each byte of a record changed once: reading the sample is a value or an error, and opening never fails.
TEST_F(CocoDatasetTest, DamageIsFound) {
  const std::string good = SchemaRecord{}.build();
  write_records("train-00000-of-00001", {good});
  const std::string file = files_.read_file(temp_.file("train-00000-of-00001"));
  ASSERT_TRUE(open()->read(0).ok());
  for (size_t byte = formats::kTfRecordFrameBytes - 4; byte < file.size() - 4; byte += byte < 200 ? 1 : 97) {
    std::string damaged = file;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x15);
    write("train-00000-of-00001", damaged);
    EXPECT_NE(core::error_of([&] {
                const auto set = open();
                static_cast<void>(set->read(0).value());
              }),
              std::nullopt)
        << byte;
  }
}

TEST_F(CocoDatasetTest, HeadsOfRecordsLackOnlyTheImage) {
  formats::ExampleBuilder example;
  const std::string long_text(size_t{70'000}, 'b');
  example.add_bytes("a", "first");
  example.add_bytes(formats::kImageEncoded, std::string(size_t{200'000}, 'c'));
  example.add_bytes("long", long_text);
  example.add_int64("last", 7);
  write_records("x", {"abc", example.build(), ""});
  const auto file = files_.open_read(temp_.file("x"));
  const std::vector<formats::RecordSpan> spans = formats::index_tfrecord(*file);
  EXPECT_EQ(read_record_head(*file, spans[0]).value(), "abc") << "nothing that is known: as it is";
  const std::string head = read_record_head(*file, spans[1]).value();
  EXPECT_LT(head.size(), long_text.size() + 100);
  auto parsed = formats::ExampleView::parse(head);
  EXPECT_EQ(parsed.value().bytes("a").value(), "first");
  EXPECT_EQ(parsed.value().bytes("long").value(), long_text);
  EXPECT_EQ(parsed.value().int64("last").value(), 7);
  EXPECT_FALSE(parsed.value().has(formats::kImageEncoded));
  EXPECT_EQ(read_record_head(*file, spans[2]).value(), "");
}

TEST(CocoTinySet, HasItsImages) {
  const auto folder = core::shared_data("coco_tiny");
  if (!folder) GTEST_SKIP() << core::missing_shared_data("coco_tiny");
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const auto set = open_coco({.directory = *folder, .subset = subset});
    std::set<int64_t> boxed;
    for (const CocoBox& box : set->annotations().boxes) boxed.insert(box.image_id);
    EXPECT_EQ(set->size(), std::ssize(boxed));
    size_t boxes = 0;
    for (int64_t i = 0; i < set->size(); ++i) boxes += set->read(i).value().boxes.size();
    EXPECT_LE(boxes, set->annotations().boxes.size());
    EXPECT_GE(boxes, set->annotations().boxes.size() - 10) << "few leave their image";
  }
}

// An image's entry is 27 bytes longer than the image. Those of more than 2^16 bytes are left out.
TEST_F(CocoDatasetTest, HeadsOfRecordsHaveImagesThatAreAsShortAsOtherFeatures) {
  for (const size_t bytes : {size_t{65'509}, size_t{65'510}, size_t{100'000}}) {
    formats::ExampleBuilder example;
    example.add_bytes(formats::kImageEncoded, std::string(bytes, 'c'));
    example.add_int64("last", 7);
    write_records("x", {example.build()});
    const auto file = files_.open_read(temp_.file("x"));
    const std::string head = read_record_head(*file, formats::index_tfrecord(*file).at(0)).value();
    auto parsed = formats::ExampleView::parse(head);
    EXPECT_EQ(parsed.value().has(formats::kImageEncoded), bytes == 65'509) << bytes;
    EXPECT_EQ(parsed.value().int64("last").value(), 7) << bytes;
  }
}

TEST_F(CocoDatasetTest, NamesAnImageThatIsMissing) {
  write_small_coco(temp_.path());
  for (const CocoImage& image : small_training_annotations().images) {
    std::filesystem::remove(temp_.file("train2017/" + image.file_name));
  }
  EXPECT_THAT(refusal(ErrorCode::kNotFound),
              HasSubstr("expected 3 images, such as 000000000070.jpg, got none of them among 0 names"));
}

TEST_F(CocoDatasetTest, ARecordThatCannotBeReadIsABadSample) {
  formats::ExampleBuilder without_image;
  without_image.add_bytes(formats::kImageSourceId, "71");
  without_image.add_int64(formats::kImageHeight, 48);
  without_image.add_int64(formats::kImageWidth, 64);
  without_image.add_bytes_list("image/object/coco", std::vector<std::string>{"3 18 0 0 0 1 1 1"});
  const std::string name = "coco_train-00000-of-00001";
  write_records(name, {SchemaRecord().build(), without_image.build(), "no example"});
  std::string content = files_.read_file(temp_.file(name));
  content.at(content.size() - 5) = 'X';  // the last letter of the text, whose checksum is wrong then
  write(name, content);
  const auto set = open();
  ASSERT_EQ(set->size(), 3);
  EXPECT_TRUE(set->read(0).ok());
  for (const int64_t bad : {1, 2}) {
    const auto record = set->read(bad);
    ASSERT_FALSE(record.ok()) << bad;
    EXPECT_THAT(std::string(record.error().what()), HasSubstr(name + " at offset ")) << bad;
  }
}

TEST_F(CocoDatasetTest, HeadsOfRecordsThatAreNoExamplesAreTheRecords) {
  const std::string longer{'\x0A', 4, '\x0A', 100, 'a', 'b'};  // a feature of 100 bytes, of which there are two
  write_records("x", {longer, "text"});
  std::string content = files_.read_file(temp_.file("x"));
  content.at(content.size() - 5) = 'X';
  write("x", content);
  const auto file = files_.open_read(temp_.file("x"));
  const std::vector<formats::RecordSpan> spans = formats::index_tfrecord(*file);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(read_record_head(*file, spans[0]).value(), longer);
  const auto damaged = read_record_head(*file, spans[1]);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code(), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace trainyard::data::coco_dataset_test
