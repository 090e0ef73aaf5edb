#include "trainyard/data/detection/boxed_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/coco_labels.h"

namespace trainyard::data::boxed_shapes_test {
namespace {

TEST(BoxedShapes, AreReadBackAsCoco) {
  const core::TempDir temp;
  const BoxedShapesOptions options{.train_count = 12, .validation_count = 5, .image_size = 120, .seed = 7};
  write_boxed_shapes(options, temp.file("set"));
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const auto set = open_coco({.directory = temp.file("set"), .subset = subset});
    ASSERT_EQ(set->size(), subset == Subset::kTrain ? 12 : 5);
    const CocoAnnotations& said = set->annotations();
    ASSERT_EQ(said.categories.size(), shape_names().size());
    for (size_t shape = 0; shape < shape_names().size(); ++shape) {
      const int64_t id = coco_category_of_label(static_cast<int64_t>(shape) + 1);
      EXPECT_EQ(said.categories[shape], (CocoCategory{id, shape_names()[shape], "shape"}));
    }
    for (size_t i = 0; i < said.images.size(); ++i) {
      EXPECT_EQ(said.images[i], (CocoImage{static_cast<int64_t>(i) + 1, fmt::format("{:012}.jpg", i + 1), 120, 120}));
    }
    for (size_t i = 0; i < said.boxes.size(); ++i) {
      EXPECT_EQ(said.boxes[i].id, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(said.boxes[i].area, said.boxes[i].width * said.boxes[i].height);
      EXPECT_FALSE(said.boxes[i].crowd);
    }
    for (int64_t i = 0; i < set->size(); ++i) {
      const BoxedShapes drawn = draw_boxed_shapes(7, subset, i, 120);
      const Record record = set->read(i).value();
      ASSERT_EQ(record.boxes.size(), drawn.boxes.size());
      for (size_t box = 0; box < drawn.boxes.size(); ++box) {
        EXPECT_EQ(record.box_labels[box], drawn.shapes[box] + 1);
        EXPECT_NEAR(record.boxes[box].xmin, drawn.boxes[box].xmin, 1e-6);
        EXPECT_NEAR(record.boxes[box].ymin, drawn.boxes[box].ymin, 1e-6);
        EXPECT_NEAR(record.boxes[box].xmax, drawn.boxes[box].xmax, 1e-6);
        EXPECT_NEAR(record.boxes[box].ymax, drawn.boxes[box].ymax, 1e-6);
      }
    }
  }
}

// A circle touches the middle of each edge of its box: a little inside there is its colour, a little outside there is
// not.
TEST(BoxedShapes, BoxesAreWhereTheShapesAre) {
  constexpr int kSide = 100;
  int compared = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const BoxedShapes drawn = draw_boxed_shapes(1, Subset::kTrain, i, kSide);
    ASSERT_FALSE(drawn.boxes.empty());
    ASSERT_LE(drawn.boxes.size(), 4U);
    for (size_t a = 0; a < drawn.boxes.size(); ++a) {
      const Box& box = drawn.boxes[a];
      EXPECT_GE(std::min(box.xmin, box.ymin), 0);
      EXPECT_LE(std::max(box.xmax, box.ymax), 1);
      EXPECT_GT(std::min(box.xmax - box.xmin, box.ymax - box.ymin), 0.03F);
      EXPECT_LT(std::max(box.xmax - box.xmin, box.ymax - box.ymin), 0.52F);
    }
    if (drawn.boxes.size() != 1 || shape_names()[static_cast<size_t>(drawn.shapes[0])] != "circle") continue;
    const auto pixel = [&](double x, double y) {
      const auto column = std::clamp(static_cast<int>(x * kSide), 0, kSide - 1);
      const auto row = std::clamp(static_cast<int>(y * kSide), 0, kSide - 1);
      const uint8_t* const rgb = drawn.image.pixels.data() + 3 * (row * kSide + column);
      return std::array<double, 3>{double(rgb[0]), double(rgb[1]), double(rgb[2])};
    };
    const auto apart = [](const std::array<double, 3>& a, const std::array<double, 3>& b) {
      return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
    };
    const Box& box = drawn.boxes[0];
    const double x = (box.xmin + box.xmax) / 2, y = (box.ymin + box.ymax) / 2, far = 0.04;
    const std::array<double, 3> middle = pixel(x, y);
    // A little inside of each edge there is the shape, a little outside there is not.
    if (box.xmin > far) {
      EXPECT_GT(apart(middle, pixel(box.xmin - far / 2, y)), 40);
    }
    if (box.ymax < 1 - far) {
      EXPECT_GT(apart(middle, pixel(x, box.ymax + far / 2)), 40);
    }
    EXPECT_LT(apart(middle, pixel(box.xmin + far, y)), 60);
    EXPECT_LT(apart(middle, pixel(x, box.ymax - far)), 60);
    ++compared;
  }
  EXPECT_GT(compared, 0) << "a seed without a lone circle shows nothing";
}

TEST(BoxedShapes, TheSeedDecides) {
  const BoxedShapes one = draw_boxed_shapes(1, Subset::kTrain, 3, 64);
  EXPECT_EQ(one.image.pixels, draw_boxed_shapes(1, Subset::kTrain, 3, 64).image.pixels);
  EXPECT_NE(one.image.pixels, draw_boxed_shapes(2, Subset::kTrain, 3, 64).image.pixels);
  EXPECT_NE(one.image.pixels, draw_boxed_shapes(1, Subset::kValidation, 3, 64).image.pixels);
}

TEST(BoxedShapes, RefusesSizesOutOfRange) {
  const core::TempDir temp;
  EXPECT_EQ(core::code_of([&] { write_boxed_shapes({.image_size = 8}, temp.file("x")); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] { write_boxed_shapes({.train_count = 0}, temp.file("x")); }),
            core::ErrorCode::kInvalidArgument);
  const auto refusal = [](const BoxedShapesOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refusal({.train_count = 1, .validation_count = 1, .image_size = 16}), "no error");
  EXPECT_EQ(refusal({.image_size = 1024}), "no error");
  EXPECT_EQ(refusal({.image_size = 15}),
            "boxed shapes option image_size is out of range: expected 16 to 1024 pixels, got 15");
  EXPECT_EQ(refusal({.image_size = 1025}),
            "boxed shapes option image_size is out of range: expected 16 to 1024 pixels, got 1025");
  EXPECT_EQ(refusal({.validation_count = 0}),
            "boxed shapes option validation_count is out of range: expected at least 1 image, got 0");
}

TEST(BoxedShapes, LieInAllPartsOfTheImage) {
  float right = 0, bottom = 0, left = 1, top = 1;
  for (int64_t i = 0; i < 60; ++i) {
    for (const Box& box : draw_boxed_shapes(1, Subset::kTrain, i, 100).boxes) {
      right = std::max(right, box.xmin);
      bottom = std::max(bottom, box.ymin);
      left = std::min(left, box.xmax);
      top = std::min(top, box.ymax);
    }
  }
  EXPECT_GT(right, 0.5F);
  EXPECT_GT(bottom, 0.5F);
  EXPECT_LT(left, 0.5F);
  EXPECT_LT(top, 0.5F);
}

// Turned by a quarter, these are what they were: but for the place within a pixel, they are as high as wide.
TEST(BoxedShapes, BoxesOfEvenShapesAreSquare) {
  constexpr int kSide = 100;
  double difference = 0;
  int count = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const BoxedShapes drawn = draw_boxed_shapes(1, Subset::kTrain, i, kSide);
    for (size_t k = 0; k < drawn.boxes.size(); ++k) {
      const std::string& name = shape_names()[static_cast<size_t>(drawn.shapes[k])];
      if (name != "circle" && name != "ring" && name != "cross") continue;
      const Box& box = drawn.boxes[k];
      difference += kSide * (static_cast<double>(box.xmax) - box.xmin - (static_cast<double>(box.ymax) - box.ymin));
      ++count;
    }
  }
  ASSERT_GT(count, 5);
  EXPECT_NEAR(difference / count, 0, 1);
}

}  // namespace
}  // namespace trainyard::data::boxed_shapes_test
