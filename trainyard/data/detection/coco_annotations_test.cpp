#include "trainyard/data/detection/coco_annotations.h"

#include <limits>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/detection/coco_labels.h"
#include "trainyard/data/testing/coco_folder.h"

namespace trainyard::data::coco_annotations_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::HasSubstr;

const std::string kImage = R"({"id": 1, "file_name": "a.jpg", "width": 20, "height": 10})";
const std::string kBox =
    R"({"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 9, "iscrowd": 1})";
const std::string kCategory = R"({"id": 3, "name": "car", "supercategory": "vehicle"})";

std::string text_of(const std::string& images, const std::string& boxes, const std::string& categories) {
  return fmt::format(R"({{"info": {{"a": [1, [2, {{}}]]}}, "images": [{}], "annotations": [{}], "categories": [{}]}})",
                     images, boxes, categories);
}

class CocoAnnotationsTest : public ::testing::Test {
 protected:
  CocoAnnotations read(const std::string& text) {
    files_.write_file_atomically(path_, text);
    return read_coco_annotations(path_, files_);
  }
  std::vector<CocoDetection> read_detections(const std::string& text) {
    files_.write_file_atomically(path_, text);
    return read_coco_detections(path_, files_);
  }
  std::string refusal(const std::string& text) {
    return core::message_of([&] { static_cast<void>(read(text)); }, ErrorCode::kCorruptData);
  }
  std::string refusal_of_box(const std::string& box) { return refusal(text_of(kImage, box, kCategory)); }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  std::string path_ = temp_.file("instances.json");
};

TEST_F(CocoAnnotationsTest, ReadsWhatItWritesAndPassesOverOtherFields) {
  const CocoAnnotations small = small_training_annotations();
  EXPECT_EQ(read(coco_annotations_json(small)), small);
  const CocoAnnotations read_back = read(
      R"({"annotations": [{"segmentation": {"counts": [1, 2], "size": [3]}, "bbox": [1e0, 2, 3.5, 4], "id": 7, "image_id": 1, "category_id": 3}],
         "licenses": [{"url": "\u00e9"}], "categories": [{"name": "car", "id": 3, "keypoints": ["a"]}],
         "images": [{"id": 1, "license": null, "file_name": "a.jpg", "width": 20, "height": 10}]})");
  ASSERT_EQ(read_back.boxes.size(), 1U);
  EXPECT_EQ(read_back.boxes[0], (CocoBox{7, 1, 3, 1, 2, 3.5, 4, 14, false})) << "area and crowd have defaults";
  EXPECT_EQ(read_back.categories[0].supercategory, "");
}

TEST_F(CocoAnnotationsTest, RefusesBadBoxes) {
  EXPECT_EQ(read(text_of(kImage, kBox, kCategory)).boxes.size(), 1U);
  const auto with = [](const std::string& bbox) {
    return fmt::format(R"({{"id": 7, "image_id": 1, "category_id": 3, "bbox": {}, "area": 1, "iscrowd": 0}})", bbox);
  };
  EXPECT_THAT(refusal_of_box(with("[NaN, 2, 3, 4]")), HasSubstr("no JSON"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3, Infinity]")), HasSubstr("no JSON"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3, 1e999]")), HasSubstr("no JSON"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3]")), HasSubstr("four numbers"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3, 4, 5]")), HasSubstr("four numbers"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3, null]")), HasSubstr("four numbers"));
  EXPECT_THAT(refusal_of_box(with("[1, 2, 3, [4]]")), HasSubstr("four numbers"));
  EXPECT_THAT(refusal_of_box(with("4")), HasSubstr("bbox"));
  EXPECT_THAT(refusal_of_box(with("\"4\"")), HasSubstr("bbox"));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1, "category_id": 3})"), HasSubstr("no \"bbox\""));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1.5, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              HasSubstr("image_id"));
  EXPECT_THAT(refusal_of_box(R"({"id": 18446744073709551615, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 2})"),
              HasSubstr("iscrowd"));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 2, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              HasSubstr("box 7 belongs to an image that the file does not list"));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1, "category_id": 4, "bbox": [1, 2, 3, 4]})"),
              HasSubstr("box 7 is of an unknown category"));
  EXPECT_THAT(refusal_of_box(kBox + "," + kBox), HasSubstr("two boxes have the same id"));
}

TEST_F(CocoAnnotationsTest, RefusesBadImagesAndCategories) {
  const auto image = [](const std::string& name, const std::string& width) {
    return fmt::format(R"({{"id": 1, "file_name": "{}", "width": {}, "height": 10}})", name, width);
  };
  for (const char* name : {"", "/etc/passwd", "../a.jpg", "a/../../b.jpg", "..", "a\\u0000.jpg"}) {
    EXPECT_THAT(refusal(text_of(image(name, "20"), kBox, kCategory)), HasSubstr("file_name")) << name;
  }
  EXPECT_EQ(read(text_of(image("a/..b.jpg", "20"), kBox, kCategory)).images[0].file_name, "a/..b.jpg");
  for (const char* width : {"0", "-3", "20.5", "99999999", "null", "[]"}) {
    EXPECT_THAT(refusal(text_of(image("a.jpg", width), kBox, kCategory)), HasSubstr("width")) << width;
  }
  EXPECT_THAT(refusal(text_of(kImage + "," + kImage, kBox, kCategory)), HasSubstr("two images have the same id"));
  EXPECT_THAT(refusal(text_of(kImage, kBox, kCategory + "," + kCategory)), HasSubstr("two categories"));
  EXPECT_THAT(refusal(text_of(kImage, kBox, R"({"id": 3})")), HasSubstr("no \"name\""));
  EXPECT_THAT(refusal(text_of("7", kBox, kCategory)), HasSubstr("something else than objects"));
  EXPECT_THAT(refusal(text_of("[1]", kBox, kCategory)), HasSubstr("something else than objects"));
}

TEST_F(CocoAnnotationsTest, RefusesOtherTexts) {
  for (const char* text :
       {"[]", "7", "\"a\"", "{\"images\": {}}", "{\"images\": 7}", "{\"annotations\": []}", "{\"images\": []}", "{}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("no annotations of COCO")) << text;
  }
  for (const char* text : {"", "{", "{\"images\": [", "\xff\xfe", "{\"images\": []}}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("JSON")) << text;
  }
  for (const char* info : {"", ",", "]", "[", "[[[{", "\"", "\"\\", "[\"]\""}) {
    EXPECT_THAT(refusal(fmt::format("{{\"info\": {}", info)), HasSubstr("JSON")) << info;
  }
  EXPECT_THAT(refusal("{\"info\": }"), HasSubstr("JSON"));
  EXPECT_THAT(refusal("{\"info\" 7}"), HasSubstr("JSON"));
  EXPECT_THAT(refusal("{\"images\": " + std::string(1000, '[')), HasSubstr("something else than objects"));
  EXPECT_EQ(core::code_of([&] { static_cast<void>(read_coco_annotations(temp_.file("none"), files_)); }),
            ErrorCode::kNotFound);
}

TEST_F(CocoAnnotationsTest, SaysWhichByteAnObjectEndsAt) {
  const std::string box = R"({"id": 7, "image_id": 1, "category_id": 3})";
  for (const size_t spaces : {size_t{0}, size_t{1} << 20}) {
    const std::string text = std::string(spaces, ' ') + text_of(kImage, box, kCategory);
    EXPECT_THAT(refusal(text), HasSubstr(fmt::format("an object has no \"bbox\": {} at byte {};", path_,
                                                     text.find(box) + box.size())));
  }
}

TEST_F(CocoAnnotationsTest, SaysWhichNumbersAreWrong) {
  const auto image = [](int64_t width, int64_t height) {
    return text_of(fmt::format(R"({{"id": 1, "file_name": "a.jpg", "width": {}, "height": {}}})", width, height), kBox,
                   kCategory);
  };
  constexpr int kMost = 1 << 20;
  EXPECT_EQ(read(image(kMost, 1)).images[0], (CocoImage{1, "a.jpg", kMost, 1}));
  EXPECT_EQ(read(image(1, kMost)).images[0], (CocoImage{1, "a.jpg", 1, kMost}));
  EXPECT_THAT(refusal(image(kMost + 1, 1)),
              AllOf(HasSubstr("\"width\" has"), HasSubstr("expected a whole number in [1, 1048576], got 1048577;")));
  EXPECT_THAT(refusal(image(1, kMost + 1)),
              AllOf(HasSubstr("\"height\" has"), HasSubstr("expected a whole number in [1, 1048576], got 1048577;")));
  EXPECT_THAT(refusal(image(1, 0)), AllOf(HasSubstr("\"height\" has"), HasSubstr("got 0;")));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1.5, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              HasSubstr("expected a whole number, got 1.5;"));
  EXPECT_THAT(refusal_of_box(R"({"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3]})"),
              HasSubstr("expected four numbers, got 3;"));
  EXPECT_THAT(refusal_of_box(R"({"id": 8, "image_id": 2, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              AllOf(HasSubstr("box 8 belongs"), HasSubstr("expected an id of \"images\", got 2;")));
  EXPECT_THAT(refusal_of_box(R"({"id": 8, "image_id": 1, "category_id": 4, "bbox": [1, 2, 3, 4]})"),
              AllOf(HasSubstr("box 8 is of"), HasSubstr("expected an id of \"categories\", got 4;")));
  EXPECT_THAT(refusal_of_box(kBox + "," + kBox), HasSubstr("expected different ids, got 7;"));
  EXPECT_THAT(refusal(text_of(kImage + "," + kImage, kBox, kCategory)), HasSubstr("expected different ids, got 1;"));
  EXPECT_THAT(refusal(text_of(kImage, kBox, kCategory + "," + kCategory)), HasSubstr("different ids, got 3;"));
  EXPECT_THAT(refusal(R"({"images": []})"), HasSubstr(R"(got no "annotations";)"));
  EXPECT_THAT(refusal(R"({"annotations": []})"), HasSubstr(R"(got no "images";)"));
}

TEST_F(CocoAnnotationsTest, ACrowdMayBeABoolean) {
  for (const bool crowd : {true, false}) {
    const std::string box =
        fmt::format(R"({{"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": {}}})", crowd);
    EXPECT_EQ(read(text_of(kImage, box, kCategory)).boxes[0].crowd, crowd);
  }
}

// A value that never ends would otherwise be kept whole: 1 GB of one text.
TEST_F(CocoAnnotationsTest, BoundsTheLengthOfAValue) {
  files_.write_file_atomically(path_, R"({"images": [{"file_name": ")" + std::string(size_t{20} << 20, 'a') + "\"}]}");
  EXPECT_THAT(
      core::message_of([&] { static_cast<void>(read_coco_annotations(path_, files_)); }, ErrorCode::kCorruptData),
      HasSubstr("a value is too long"));
}

// Of what is passed over nothing is kept, whatever it holds; also where it crosses the chunks that are read.
TEST_F(CocoAnnotationsTest, PassesOverAnyValue) {
  for (const std::string value : {R"("a\"]}\\")", R"([1, "]", {"a": ["}"]}])", "NaN", "-1.5e3", "null", "{}", "[]"}) {
    for (const size_t spaces : {size_t{0}, (size_t{1} << 20) - 30, (size_t{1} << 20) - 25}) {
      const std::string other = fmt::format("\"other\"{0}: {1}", std::string(spaces, ' '), value);
      const std::string text = fmt::format(R"({{{0}, "images": [{{{0}, {1}], "annotations": [], "categories": []}})",
                                           other, kImage.substr(1));
      EXPECT_EQ(read(text).images.size(), 1U) << value << " " << spaces;
    }
  }
  const std::string mask = "[" + std::string(size_t{40} << 20, '1') + "]";
  EXPECT_EQ(read(text_of(kImage, kBox.substr(0, kBox.size() - 1) + ", \"segmentation\": " + mask + "}", kCategory))
                .boxes.size(),
            1U);
}

TEST_F(CocoAnnotationsTest, EveryCutIsAnError) {
  const std::string text = text_of(kImage, kBox, kCategory);
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(core::error_of([&] { static_cast<void>(read(text.substr(0, length))); }), std::nullopt) << length;
  }
}

TEST_F(CocoAnnotationsTest, DetectionsKeepTheirNumbers) {
  const std::vector<CocoDetection> detections = {{42, 18, 258.15, 41.29, 1.0 / 3, 243.78000000000003, 0.1F},
                                                 {std::numeric_limits<int64_t>::max(), 1, 0, -1e-300, 1e300, 5, 1}};
  write_coco_detections(path_, detections, files_);
  EXPECT_EQ(read_coco_detections(path_, files_), detections);
  EXPECT_EQ(read_detections("[]").size(), 0U);
  EXPECT_EQ(read_detections(coco_detections_json({})).size(), 0U);
  for (const char* text : {"{}", "7", R"([{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}])", "[[]]", "[1]",
                           R"([{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "score": "high"}])"}) {
    EXPECT_EQ(core::code_of([&] { static_cast<void>(read_detections(text)); }), ErrorCode::kCorruptData) << text;
  }
  const CocoDetection no_number{.score = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(core::code_of([&] {
              static_cast<void>(coco_detections_json({&no_number, 1}));
            }),
            ErrorCode::kInvalidArgument);
  const CocoAnnotations endless{.boxes = {{.area = std::numeric_limits<double>::infinity()}}};
  EXPECT_EQ(core::code_of([&] { static_cast<void>(coco_annotations_json(endless)); }), ErrorCode::kInvalidArgument);
}

TEST(CocoTiny, HasItsBoxesAndCrowds) {
  const auto folder = core::shared_data("coco_tiny/annotations");
  if (!folder) GTEST_SKIP() << core::missing_shared_data("coco_tiny");
  size_t crowds = 0;
  std::vector<size_t> boxes;
  for (const char* subset : {"train", "val"}) {
    const CocoAnnotations read = read_coco_annotations(
        core::join_path(*folder, fmt::format("instances_{}2017.json", subset)), core::local_file_system());
    EXPECT_EQ(read.categories.size(), 80U);
    for (const CocoCategory& category : read.categories) {
      const auto label = coco_label_of_category(category.id);
      ASSERT_TRUE(label);
      EXPECT_EQ(coco_label_names()[static_cast<size_t>(*label)], category.name);
      EXPECT_EQ(coco_category_of_label(*label), category.id);
    }
    boxes.push_back(read.boxes.size());
    for (const CocoBox& box : read.boxes) crowds += box.crowd ? 1 : 0;
  }
  EXPECT_THAT(boxes, ::testing::ElementsAre(705, 815));
  EXPECT_EQ(crowds, 17U);
}

TEST(CocoLabels, OtherNumbersAreNoLabels) {
  for (const int64_t id : {-1, 0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91}) {
    EXPECT_FALSE(coco_label_of_category(id)) << id;
  }
  EXPECT_EQ(coco_label_of_category(90), 80);
  EXPECT_EQ(coco_category_of_label(0), 0);
  EXPECT_EQ(core::code_of([] { static_cast<void>(coco_category_of_label(81)); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([] { static_cast<void>(coco_category_of_label(-1)); }), ErrorCode::kInvalidArgument);
}

// Ten of the ids 1 to 90 are of categories that COCO does not use.
TEST(CocoLabels, AreCocosEightyCategories) {
  const std::set<int64_t> unused = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83};
  int64_t label = 0;
  for (int64_t id = 1; id <= 90; ++id) {
    if (unused.contains(id)) continue;
    ++label;
    EXPECT_EQ(coco_category_of_label(label), id);
    EXPECT_EQ(coco_label_of_category(id), label);
  }
  EXPECT_EQ(label, 80);
  const std::string names =
      "background, person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, "
      "fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, "
      "bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, "
      "sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, "
      "wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, "
      "hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, "
      "mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, "
      "vase, scissors, teddy bear, hair drier, toothbrush";
  EXPECT_EQ(fmt::format("{}", fmt::join(coco_label_names(), ", ")), names);
}

TEST_F(CocoAnnotationsTest, SaysWhatIsInThePlaceOfAnotherType) {
  EXPECT_THAT(refusal(text_of("7", kBox, kCategory)), HasSubstr("expected an object, got a number;"));
  EXPECT_THAT(refusal(text_of("[1]", kBox, kCategory)), HasSubstr("expected an object, got an array;"));
  EXPECT_THAT(refusal(text_of("\"a\"", kBox, kCategory)), HasSubstr("expected an object, got a string;"));
  EXPECT_THAT(refusal(text_of("null", kBox, kCategory)), HasSubstr("expected an object, got null;"));
  EXPECT_THAT(refusal(text_of(kImage, kBox, R"({"id": 3, "name": 7})")), HasSubstr("\"name\" has an impossible value"));
  EXPECT_THAT(refusal(text_of(kImage, kBox, R"({"id": 3, "name": "car", "supercategory": {}})")),
              AllOf(HasSubstr("\"supercategory\" has"), HasSubstr("expected another type, got an object;")));
  EXPECT_THAT(refusal(text_of(kImage, kBox, R"({"id": "3", "name": "car"})")),
              AllOf(HasSubstr("\"id\" has"), HasSubstr("expected another type, got a string;")));
  const auto refused = [&](const std::string& text) {
    return core::message_of([&] { static_cast<void>(read_detections(text)); }, ErrorCode::kCorruptData);
  };
  EXPECT_THAT(refused("{}"), AllOf(HasSubstr("no detections of COCO"), HasSubstr("expected a list of objects")));
  EXPECT_THAT(refused("[[]]"), HasSubstr("expected an object, got an array;"));
  EXPECT_THAT(refused("[1]"), HasSubstr("expected an object, got a number;"));
  EXPECT_THAT(refused(R"([{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}])"), HasSubstr("no \"score\""));
  EXPECT_THAT(refused(R"([{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "score": "high"}])"),
              AllOf(HasSubstr("\"score\" has"), HasSubstr("got a string;")));
}

TEST(CocoJson, SaysWhichNumbersItCannotHold) {
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  const auto of_detection = [](const CocoDetection& detection) {
    return core::message_of([&] { static_cast<void>(coco_detections_json({&detection, 1})); });
  };
  EXPECT_THAT(of_detection({.x = 1, .y = 2, .width = kEndless, .height = 4}), HasSubstr("got [1, 2, inf, 4]"));
  EXPECT_THAT(of_detection({.score = kEndless}), HasSubstr("got inf"));
  EXPECT_EQ(of_detection({}), "no error");
  const auto of_box = [](const CocoBox& box) {
    return core::message_of([&] { static_cast<void>(coco_annotations_json({.boxes = {box}})); });
  };
  EXPECT_THAT(of_box({.x = 1, .y = 2, .width = 3, .height = -kEndless}), HasSubstr("got [1, 2, 3, -inf]"));
  EXPECT_THAT(of_box({.area = kEndless}), HasSubstr("got inf"));
}

}  // namespace
}  // namespace trainyard::data::coco_annotations_test
