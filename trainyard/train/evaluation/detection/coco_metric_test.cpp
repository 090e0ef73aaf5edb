#include "trainyard/train/evaluation/detection/coco_metric.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/train/evaluation/detection/coco_boxes.h"

namespace trainyard::train::coco_metric_test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Case {
  data::CocoAnnotations annotations;
  std::vector<data::CocoDetection> detections;
};

// The words of a line of tests/coco_cases.py.
class Words {
 public:
  explicit Words(const std::string& line) : words_(line) {}
  std::string text() {
    std::string word;
    words_ >> word;
    return word;
  }
  int64_t whole() { return std::stoll(text()); }
  double number() { return std::strtod(text().c_str(), nullptr); }
  int64_t count(const std::string& of) {
    EXPECT_EQ(text(), of);
    return whole();
  }

 private:
  std::istringstream words_;
};

Case read_case(Words& words) {
  Case read;
  for (int64_t n = words.count("I"); n > 0; n--) {
    read.annotations.images.push_back({.id = words.whole(), .file_name = "a.jpg", .width = 100, .height = 100});
  }
  for (int64_t n = words.count("K"); n > 0; n--) read.annotations.categories.push_back({.id = words.whole()});
  for (int64_t n = words.count("B"); n > 0; n--) {
    data::CocoBox& box = read.annotations.boxes.emplace_back();
    for (int64_t* id : {&box.id, &box.image_id, &box.category_id}) *id = words.whole();
    for (double* value : {&box.x, &box.y, &box.width, &box.height, &box.area}) *value = words.number();
    box.crowd = words.whole() != 0;
  }
  for (int64_t n = words.count("D"); n > 0; n--) {
    data::CocoDetection& found = read.detections.emplace_back();
    for (int64_t* id : {&found.image_id, &found.category_id}) *id = words.whole();
    for (double* value : {&found.x, &found.y, &found.width, &found.height, &found.score}) *value = words.number();
  }
  return read;
}

// One image with one box of 40 x 50 pixels.
Case one_box() {
  Case made;
  made.annotations.images = {{.id = 7, .file_name = "a.jpg", .width = 200, .height = 100}};
  made.annotations.categories = {{.id = 3, .name = "bicycle"}};
  made.annotations.boxes = {
      {.id = 1, .image_id = 7, .category_id = 3, .x = 10, .y = 10, .width = 40, .height = 50, .area = 2000}};
  return made;
}

data::CocoDetection found(double x, double score) {
  return {.image_id = 7, .category_id = 3, .x = x, .y = 10, .width = 40, .height = 50, .score = score};
}

CocoMetric metric_of(const Case& of, int threads = 0) {
  return coco_metric(of.annotations, of.detections, {.threads = threads});
}

TEST(CocoMetric, EqualsPyCocoTools) {
  int cases = 0;
  for (const std::string& line : core::golden_lines("trainyard/train/testdata/coco_metric.txt")) {
    Words words(line);
    const Case read = read_case(words);
    EXPECT_EQ(words.text(), "=");
    std::array<double, CocoMetric::kValues> expected{};
    for (double& value : expected) value = words.number();
    EXPECT_THAT(metric_of(read).values, ElementsAreArray(expected)) << "case " << cases;
    cases++;
  }
  EXPECT_EQ(cases, 80);
}

TEST(CocoMetric, ThresholdsAreThoseOfNumpy) {
  // [value.hex() for value in numpy.linspace(0.5, 0.95, 10)]
  const std::array<double, kCocoThresholds> expected = {
      0x1.0000000000000p-1, 0x1.199999999999ap-1, 0x1.3333333333333p-1, 0x1.4cccccccccccdp-1, 0x1.6666666666666p-1,
      0x1.8000000000000p-1, 0x1.999999999999ap-1, 0x1.b333333333333p-1, 0x1.cccccccccccccp-1, 0x1.e666666666666p-1};
  for (int t = 0; t < kCocoThresholds; t++) EXPECT_EQ(coco_iou_threshold(t), expected[static_cast<size_t>(t)]) << t;
}

// tests/coco_metric_test.py, which sets the variables, compares with pycocotools itself.
TEST(CocoMetric, EvaluatesCasesOfAFile) {
  const char* const path = std::getenv("TRAINYARD_COCO_CASES");
  if (path == nullptr) {
    Words words("I 1 5 K 1 2 B 1 1 5 2 0 0 40 40 1600 0 D 1 5 2 0 0 40 40 0.5");
    EXPECT_NEAR(metric_of(read_case(words)).ap(), 1, 1e-15);
    return;
  }
  std::istringstream text(core::local_file_system().read_file(path));
  std::string results;
  for (std::string line; std::getline(text, line);) {
    Words words(line);
    for (const double value : metric_of(read_case(words)).values) results += fmt::format("{:a} ", value);
    results += '\n';
  }
  core::local_file_system().write_file_atomically(std::getenv("TRAINYARD_COCO_RESULTS"), results);
}

TEST(CocoMetric, MatchesTheBestScoreFirst) {
  Case made = one_box();
  made.detections = {found(10, 0.5)};
  // pycocotools divides one true positive by 1 + 2^-52.
  EXPECT_NEAR(metric_of(made).ap(), 1, 1e-15);
  EXPECT_EQ(metric_of(made).values[4], metric_of(made).ap()) << "the box is medium";
  EXPECT_EQ(metric_of(made).values[3], -1) << "no box is small";
  EXPECT_EQ(metric_of(made).values[8], 1);

  made.detections = {found(10, 0.5), found(10, 0.4)};
  EXPECT_NEAR(metric_of(made).ap(), 1, 1e-15) << "a duplicate comes after the match";
  made.detections = {found(100, 0.9), found(10, 0.5)};
  EXPECT_NEAR(metric_of(made).ap(), 0.5, 1e-15) << "a false positive comes before it";
  EXPECT_EQ(metric_of(made).values[6], 0) << "of one detection an image the box is not found";
  EXPECT_EQ(metric_of(made).values[7], 1);

  // IoU 35 / 45 = 0.78 reaches six of ten thresholds.
  made.detections = {found(15, 0.9)};
  EXPECT_NEAR(metric_of(made).ap(), 0.6, 1e-15);
  EXPECT_NEAR(metric_of(made).ap50(), 1, 1e-15);
}

// Scores may be logits: of two detections the one with the higher score is matched first.
TEST(CocoMetric, ScoresMayBeNegative) {
  const auto ap = [](double right, double wrong) {
    Case made = one_box();
    made.detections = {found(100, wrong), found(10, right)};
    return metric_of(made).ap();
  };
  EXPECT_NEAR(ap(-0.5, -0.75), 1, 1e-15);
  EXPECT_NEAR(ap(-0.75, -0.5), 0.5, 1e-15);
  EXPECT_NEAR(ap(0.25, -0.5), 1, 1e-15);
  EXPECT_NEAR(ap(-0.5, 0.25), 0.5, 1e-15);
  EXPECT_NEAR(ap(0.0, -0.25), 1, 1e-15);
  EXPECT_NEAR(ap(-0.0, 0.0), 0.5, 1e-15) << "equal ones stay in their order";
}

TEST(CocoMetric, AHundredDetectionsOfAnImageCount) {
  Case made = one_box();
  for (int i = 0; i < 99; i++) made.detections.push_back(found(100, 0.9));
  made.detections.push_back(found(10, 0.5));
  EXPECT_NEAR(metric_of(made).ap(), 0.01, 1e-12);
  EXPECT_EQ(metric_of(made).values[7], 0) << "it is not among ten";
  made.detections[99] = found(100, 0.9);
  made.detections.push_back(found(10, 0.5));
  EXPECT_EQ(metric_of(made).ap(), 0);
}

TEST(CocoMetric, CrowdsAndOtherSizesAreIgnored) {
  Case made = one_box();
  made.annotations.boxes.push_back({.id = 2,
                                    .image_id = 7,
                                    .category_id = 3,
                                    .x = 100,
                                    .y = 0,
                                    .width = 100,
                                    .height = 100,
                                    .area = 9999,
                                    .crowd = true});
  made.detections = {found(110, 0.9), found(120, 0.8), found(10, 0.5)};
  EXPECT_NEAR(metric_of(made).ap(), 1, 1e-15) << "what lies in the crowd is no false positive";
  made.detections = {found(60, 0.9), found(10, 0.5)};
  EXPECT_NEAR(metric_of(made).ap(), 0.5, 1e-15);
}

TEST(CocoMetric, NothingToFindAndNothingFound) {
  Case made = one_box();
  EXPECT_EQ(metric_of(made).ap(), 0);
  EXPECT_EQ(metric_of(made).values[8], 0);
  made.annotations.boxes.clear();
  made.detections = {found(10, 0.5)};
  for (const double value : metric_of(made).values) EXPECT_EQ(value, -1);
  made.detections[0].category_id = 4;
  made.annotations = one_box().annotations;
  EXPECT_EQ(metric_of(made).ap(), 0) << "a detection of another category does not count";
}

// Enough detections that several threads share them, in any order of images.
TEST(CocoMetric, DoesNotDependOnThreads) {
  std::mt19937_64 random(3);
  const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<uint64_t>(most)); };
  Case made;
  for (int i = 0; i < 300; i++) made.annotations.images.push_back({.id = (i * 7919) % 100'000, .file_name = "a.jpg"});
  for (int k = 0; k < 7; k++) made.annotations.categories.push_back({.id = 11 * k});
  for (int64_t b = 1; b < 3000; b++) {
    const double width = 1 + draw(150), height = 1 + draw(150);
    made.annotations.boxes.push_back({.id = b,
                                      .image_id = made.annotations.images[draw(300)].id,
                                      .category_id = 11 * draw(7),
                                      .x = draw(50) * 1.0,
                                      .y = draw(50) * 1.0,
                                      .width = width,
                                      .height = height,
                                      .area = width * height * 0.7,
                                      .crowd = draw(20) == 0});
  }
  for (int d = 0; d < 40'000; d++) {
    const data::CocoBox& box = made.annotations.boxes[draw(2999)];
    made.detections.push_back({.image_id = box.image_id,
                               .category_id = box.category_id,
                               .x = box.x + draw(5),
                               .y = box.y + draw(5),
                               .width = box.width,
                               .height = box.height,
                               .score = draw(500) * 0.002});
  }
  const CocoMetric one = metric_of(made, 1);
  EXPECT_GT(one.ap(), 0.01);
  for (const int threads : {2, 3, 8})
    EXPECT_THAT(metric_of(made, threads).values, ElementsAreArray(one.values)) << threads;
}

TEST(CocoMetric, RefusesWhatIsWrong) {
  const auto error_of = [](const Case& made) -> std::string {
    try {
      metric_of(made);
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  Case made = one_box();
  made.detections = {found(10, 0.5), found(10, 0.5)};
  EXPECT_EQ(error_of(made), "");
  made.detections[1].image_id = 8;
  EXPECT_THAT(error_of(made), HasSubstr("detection 1 is of image 8, which the annotations do not list"));
  made.detections[1] = found(10, std::nan(""));
  EXPECT_THAT(error_of(made), HasSubstr("detection 1 of image 7 has a box or a score that is not finite"));
  made.detections[1] = found(std::numeric_limits<double>::infinity(), 0.5);
  EXPECT_THAT(error_of(made), HasSubstr("not finite"));
  made = one_box();
  made.annotations.boxes.push_back(made.annotations.boxes[0]);
  EXPECT_THAT(error_of(made), HasSubstr("two annotated boxes have the id 1"));
  made = one_box();
  made.annotations.boxes[0].area = std::nan("");
  EXPECT_THAT(error_of(made), HasSubstr("the annotated box of id 1 in image 7 has a number that is not finite"));
  made = one_box();
  EXPECT_THROW(metric_of(made, -1), core::Error);
}

// Finite numbers may have a sum that is not.
TEST(CocoMetric, TakesFiniteNumbersAlone) {
  using Box = data::CocoBox;
  using Detection = data::CocoDetection;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {std::nan(""), kInfinity, -kInfinity}) {
    for (double Detection::*const number :
         {&Detection::x, &Detection::y, &Detection::width, &Detection::height, &Detection::score}) {
      Case made = one_box();
      made.detections = {found(10, 0.5)};
      made.detections[0].*number = wrong;
      EXPECT_THAT(core::message_of([&] { metric_of(made); }),
                  HasSubstr("detection 0 of image 7 has a box or a score that is not finite"));
    }
    for (double Box::*const number : {&Box::x, &Box::y, &Box::width, &Box::height, &Box::area}) {
      Case made = one_box();
      made.annotations.boxes[0].*number = wrong;
      EXPECT_THAT(core::message_of([&] { metric_of(made); }),
                  HasSubstr("the annotated box of id 1 in image 7 has a number that is not finite"));
    }
  }
  Case made = one_box();
  made.detections = {found(1e308, 0.5)};
  made.detections[0].y = 1e308;
  EXPECT_EQ(metric_of(made).ap(), 0);
}

TEST(CocoMetric, LinesAreThoseOfPyCocoTools) {
  CocoMetric metric;
  for (size_t i = 0; i < metric.values.size(); i++) metric.values[i] = 0.0625 * static_cast<double>(i) + 0.0004;
  metric.values[3] = -1;
  EXPECT_EQ(coco_metric_lines(metric),
            R"( Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.000
 Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.063
 Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = 0.125
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = -1.000
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.250
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.313
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.375
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 0.438
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.500
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.563
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.625
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.688
)");
}

// Ids far apart are searched for, and those close to each other are looked up.
TEST(CocoIds, HaveTheirPlacesInTheAscendingList) {
  for (const int64_t apart : {1, 3, 5'000'000}) {
    const CocoIds ids({7 + 4 * apart, 7, 7 + apart, 7, 7 + 2 * apart});
    EXPECT_EQ(ids.size(), 4U);
    EXPECT_EQ(ids.find(7), 0);
    EXPECT_EQ(ids.find(7 + apart), 1);
    EXPECT_EQ(ids.find(7 + 2 * apart), 2);
    EXPECT_EQ(ids.find(7 + 4 * apart), 3);
    for (const int64_t other : {int64_t{6}, 7 + 3 * apart, 8 + 4 * apart}) EXPECT_EQ(ids.find(other), -1) << other;
  }
  const CocoIds none(std::vector<int64_t>{});
  EXPECT_EQ(none.size(), 0U);
  EXPECT_EQ(none.find(0), -1);
}

// pycocotools takes a detection that matches the box of id 0 as unmatched.
TEST(CocoMetric, AMatchOfTheBoxOfIdZeroDoesNotCount) {
  const double late = 25.5 / 101;  // a false positive before the first of two boxes: precision 1/2 up to recall 1/2
  for (const int64_t id : {0, 1}) {
    Case made = one_box();
    made.annotations.boxes[0].id = id;
    made.detections = {found(14, 0.9)};  // IoU 36 / 44 = 0.82 reaches seven of ten thresholds
    EXPECT_NEAR(metric_of(made).values[8], id == 0 ? 0 : 0.7, 1e-12) << id;
    EXPECT_NEAR(metric_of(made).ap(), id == 0 ? 0 : 0.7, 1e-12) << id;
    data::CocoBox other = made.annotations.boxes[0];  // IoU 30 / 50 with the detection
    other.id = 2;
    other.x = 24;
    made.annotations.boxes.push_back(other);
    made.detections.push_back(found(24, 0.5));
    EXPECT_NEAR(metric_of(made).values[8], id == 0 ? 0.5 : 0.85, 1e-12) << id;
    EXPECT_NEAR(metric_of(made).ap(), id == 0 ? late : (7 + 3 * late) / 10, 1e-12) << id;
  }
}

// So many detections of a category that they are sorted by their digits; half of the images have nothing to find.
TEST(CocoMetric, EqualScoresComeInTheOrderOfImages) {
  Case made = one_box();
  made.annotations.images.clear();
  made.annotations.boxes.clear();
  for (int64_t image = 1; image <= 40; image++) {
    made.annotations.images.push_back({.id = image, .file_name = "a.jpg", .width = 200, .height = 100});
    if (image > 20) continue;
    data::CocoBox box = one_box().annotations.boxes[0];
    box.id = box.image_id = image;
    made.annotations.boxes.push_back(box);
  }
  for (int nth = 0; nth < 40; nth++) {
    for (int64_t image = 40; image >= 1; image--) {
      data::CocoDetection each = found(nth == 0 ? 10 : 100, nth < 20 ? 0.5 : 0.25);
      each.image_id = image;
      made.detections.push_back(each);
    }
  }
  const CocoMetric metric = metric_of(made);
  // Of 20 detections of 0.5 an image, those of the images with a box come first, and the first one of each is right.
  double expected = 0;
  for (int recall = 0; recall <= 100; recall++) {
    const double least = recall == 100 ? 1.0 : recall * 0.01;
    double best = 0;
    for (int right = 1; right <= 20; right++) {
      if (right / 20.0 >= least) best = std::max(best, right / (20.0 * (right - 1) + 1));
    }
    expected += best / 101;
  }
  EXPECT_NEAR(metric.ap50(), expected, 1e-12);
  EXPECT_NEAR(metric.ap(), expected, 1e-12);
  EXPECT_EQ(metric.values[8], 1);
}

}  // namespace
}  // namespace trainyard::train::coco_metric_test
