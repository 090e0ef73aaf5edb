#include "trainyard/data/augment/crop.h"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data::crop_test {
namespace {

TEST(Crop, KeepsItsBounds) {
  core::RandomStream random(1, "crop");
  double smallest = 1, largest = 0, aspects = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const ImageSize image{300 + static_cast<int>(random.below(300)), 300 + static_cast<int>(random.below(300))};
    const CropWindow crop = sample_crop(image, {}, {}, random);
    ASSERT_TRUE(check_inside(crop, image).ok());
    const double area =
        static_cast<double>(crop.height) * crop.width / (static_cast<double>(image.height) * image.width);
    const double aspect = static_cast<double>(crop.width) / crop.height;
    ASSERT_GE(area, 0.05);
    ASSERT_GT(aspect, 0.75 - 0.02);  // whole pixels
    ASSERT_LT(aspect, 1.33 + 0.02);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    aspects += aspect / kDraws;
  }
  EXPECT_LT(smallest, 0.12);  // no box: a tenth of the image must be covered
  EXPECT_GT(largest, 0.9);
  EXPECT_NEAR(aspects, (0.75 + 1.33) / 2, 0.01);
}

// For a fixed aspect ratio the height is uniform between those of the least and the largest area.
TEST(Crop, HeightIsUniform) {
  core::RandomStream random(2, "crop");
  const CropOptions options{.min_object_covered = 0, .min_aspect_ratio = 1, .max_aspect_ratio = 1};
  const double low = std::sqrt(0.05) * 400;
  int below_middle = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const CropWindow crop = sample_crop({400, 400}, {}, options, random);
    EXPECT_EQ(crop.width, crop.height);
    below_middle += crop.height < (low + 400) / 2 ? 1 : 0;
  }
  EXPECT_NEAR(below_middle, kDraws / 2.0, 5 * std::sqrt(kDraws / 4.0));
}

// One window alone has the area and the shape that are asked for.
TEST(Crop, HasTheShapeThatIsAskedFor) {
  core::RandomStream random(7, "crop");
  for (const auto& [image, aspect] : {std::pair{ImageSize{100, 200}, 2.0F}, {ImageSize{200, 100}, 0.5F}}) {
    const CropOptions options{.min_object_covered = 0,
                              .min_aspect_ratio = aspect,
                              .max_aspect_ratio = aspect,
                              .min_area = 0.25F,
                              .max_area = 0.25F,
                              .max_attempts = 1};
    const CropWindow crop = sample_crop(image, {}, options, random);
    EXPECT_EQ(crop.height, image.height / 2);
    EXPECT_EQ(crop.width, image.width / 2);
  }
}

// Heights of 50, 51 and 52 are drawn. Of 50 the area is less than 2540, of 52 more than 2700.
TEST(Crop, ARowMoreOrLessKeepsTheBoundsOfTheArea) {
  core::RandomStream random(8, "crop");
  const CropOptions options{.min_object_covered = 0,
                            .min_aspect_ratio = 1,
                            .max_aspect_ratio = 1,
                            .min_area = 0.254F,
                            .max_area = 0.27F,
                            .max_attempts = 1};
  for (int i = 0; i < 100; ++i) {
    const CropWindow crop = sample_crop({100, 100}, {}, options, random);
    ASSERT_EQ(crop.height, 51);
    ASSERT_EQ(crop.width, 51);
  }
}

TEST(Crop, CoversAPartOfABox) {
  core::RandomStream random(3, "crop");
  const Box box{.ymin = 0.8F, .xmin = 0.8F, .ymax = 1, .xmax = 1};
  for (int i = 0; i < 2000; ++i) {
    const CropWindow crop = sample_crop({500, 500}, {box}, {}, random);
    const int height = std::min(crop.y + crop.height, 500) - std::max(crop.y, 400);
    const int width = std::min(crop.x + crop.width, 500) - std::max(crop.x, 400);
    ASSERT_GT(height, 0);
    ASSERT_GT(width, 0);
    ASSERT_GE(height * width, 1000);
  }
}

TEST(Crop, ImpossibleWishesGiveTheWholeImage) {
  core::RandomStream random(4, "crop");
  const CropWindow whole{0, 0, 10, 400};
  EXPECT_EQ(sample_crop({10, 400}, {}, {.min_area = 0.5F}, random), whole);  // no window of that shape is so large
  const Box nothing{.ymin = 0.5F, .xmin = 0.5F, .ymax = 0.5F, .xmax = 0.5F};
  EXPECT_EQ(sample_crop({10, 400}, {nothing}, {}, random), whole);
  EXPECT_EQ(sample_crop({1, 1}, {}, {}, random), (CropWindow{0, 0, 1, 1}));
}

TEST(Crop, OutsideOfTheImageIsAnErrorThatSaysBothSizes) {
  const auto result = check_inside({.y = 1, .x = 2, .height = 3, .width = 4}, ImageSize{.height = 3, .width = 5});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().detail().expected, "inside 5 x 3");
  EXPECT_EQ(result.error().detail().actual, "4 x 3 at (2, 1)");
}

TEST(Crop, NothingIsNotInside) {
  const ImageSize image{3, 5};
  EXPECT_TRUE(check_inside({0, 0, 3, 5}, image).ok());
  EXPECT_TRUE(check_inside({2, 4, 1, 1}, image).ok());
  for (const CropWindow& window : {CropWindow{0, 0, 0, 1}, CropWindow{0, 0, 1, 0}, CropWindow{-1, 0, 1, 1},
                                   CropWindow{0, -1, 1, 1}, CropWindow{1, 0, 3, 1}, CropWindow{0, 1, 1, 5}}) {
    EXPECT_FALSE(check_inside(window, image).ok())
        << window.height << " x " << window.width << " at " << window.y << ", " << window.x;
  }
}

// torchvision's: area and the logarithm of the aspect ratio are uniform where nothing is too large to fit.
TEST(Crop, ResizedCropIsUniformInAreaAndLogarithmOfAspectRatio) {
  core::RandomStream random(5, "crop");
  const CropOptions options{.method = CropMethod::kResizedCrop, .min_area = 0.1F, .max_area = 0.5F};
  constexpr int kDraws = 20'000;
  double area = 0, area_squares = 0, aspect = 0, aspect_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const CropWindow crop = sample_crop({1000, 1000}, {}, options, random);
    ASSERT_TRUE(check_inside(crop, {1000, 1000}).ok());
    const double a = crop.height * crop.width / 1e6, r = std::log(static_cast<double>(crop.width) / crop.height);
    area += a / kDraws;
    area_squares += a * a / kDraws;
    aspect += r / kDraws;
    aspect_squares += r * r / kDraws;
  }
  const double range = std::log(1.33 / 0.75);
  EXPECT_NEAR(area, 0.3, 5 * 0.4 / std::sqrt(12 * kDraws));
  EXPECT_NEAR(area_squares - area * area, 0.4 * 0.4 / 12, 0.001);
  EXPECT_NEAR(aspect, (std::log(0.75) + std::log(1.33)) / 2, 5 * range / std::sqrt(12 * kDraws));
  EXPECT_NEAR(aspect_squares - aspect * aspect, range * range / 12, 0.002);
}

TEST(Crop, ResizedCropFallsBackToTheCentre) {
  core::RandomStream random(6, "crop");
  const CropOptions options{.method = CropMethod::kResizedCrop,
                            .min_aspect_ratio = 0.75F,
                            .max_aspect_ratio = 1.25F,
                            .min_area = 0.9F,
                            .max_attempts = 3};
  EXPECT_EQ(sample_crop({100, 1000}, {}, options, random), (CropWindow{0, 437, 100, 125}));
  EXPECT_EQ(sample_crop({1000, 75}, {}, options, random), (CropWindow{450, 0, 100, 75}));
  EXPECT_EQ(sample_crop({1, 1}, {}, options, random), (CropWindow{0, 0, 1, 1}));
}

TEST(Crop, RefusesBadOptions) {
  EXPECT_NO_THROW(CropOptions{}.validate());
  EXPECT_THROW((CropOptions{.max_area = 2}.validate()), core::Error);
  EXPECT_THROW((CropOptions{.max_attempts = 0}.validate()), core::Error);
  EXPECT_NO_THROW((CropOptions{.min_object_covered = 0,
                               .min_aspect_ratio = 2,
                               .max_aspect_ratio = 2,
                               .min_area = 1,
                               .max_area = 1,
                               .max_attempts = 1}
                       .validate()));
  EXPECT_THROW((CropOptions{.min_object_covered = -0.125F}.validate()), core::Error);
  EXPECT_THROW((CropOptions{.min_aspect_ratio = 0}.validate()), core::Error);
  EXPECT_THROW((CropOptions{.min_aspect_ratio = 2, .max_aspect_ratio = 1}.validate()), core::Error);
  EXPECT_THROW((CropOptions{.min_area = 0}.validate()), core::Error);
  EXPECT_THROW((CropOptions{.min_area = 0.75F, .max_area = 0.5F}.validate()), core::Error);
}

}  // namespace
}  // namespace trainyard::data::crop_test
