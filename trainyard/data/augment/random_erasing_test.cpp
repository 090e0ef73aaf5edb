#include "trainyard/data/augment/random_erasing.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::data::random_erasing_test {
namespace {

// Area and the logarithm of height / width are uniform; the place is uniform over all that fit.
TEST(RandomErasing, DrawsAsTorchvision) {
  core::RandomStream random(1, "random_erasing");
  const RandomErasingOptions options{.probability = 0.25F};
  constexpr int kDraws = 40'000;
  const ImageSize image{1000, 1000};
  int erased = 0;
  double area = 0, aspect = 0, place = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto part = draw_erased(options, image, random);
    if (!part) continue;
    ++erased;
    ASSERT_TRUE(check_inside(*part, image).ok());
    area += part->height * part->width / 1e6;
    aspect += std::log(static_cast<double>(part->height) / part->width);
    place += static_cast<double>(part->y) / (1000 - part->height);
  }
  EXPECT_NEAR(erased, kDraws / 4.0, 5 * std::sqrt(kDraws * 0.25 * 0.75));
  // The 1.3 % of draws that stick out are those of large areas and extreme aspect ratios: a little off the mean.
  EXPECT_NEAR(area / erased, (0.02 + 0.33) / 2, 0.005);
  EXPECT_NEAR(aspect / erased, (std::log(0.3) + std::log(3.3)) / 2, 5 * 0.7 / std::sqrt(erased));
  EXPECT_NEAR(place / erased, 0.5, 5 * 0.29 / std::sqrt(erased));
}

TEST(RandomErasing, OverwritesOnePartInAllChannels) {
  const ImageSize size{20, 30};
  for (const bool noise : {false, true}) {
    core::RandomStream random(2, "random_erasing"), again = random;
    const RandomErasingOptions options{.probability = 1,
                                       .value = noise ? ErasedValue::kPixelNoise : ErasedValue::kZero};
    std::vector<float> image(3 * 20 * 30, 5);
    erase(options, size, random, image.data());
    const auto part = draw_erased(options, size, again);
    ASSERT_TRUE(part.has_value());
    double sum = 0, squares = 0;
    int changed = 0;
    for (int i = 0; i < 3 * 20 * 30; ++i) {
      const int y = i / 30 % 20, x = i % 30;
      const bool inside = y >= part->y && y < part->y + part->height && x >= part->x && x < part->x + part->width;
      EXPECT_EQ(image[i] != 5, inside) << i;
      if (!inside) continue;
      ++changed;
      sum += image[i];
      squares += image[i] * image[i];
    }
    EXPECT_EQ(changed, 3 * part->height * part->width);
    if (!noise) {
      EXPECT_EQ(squares, 0);
    } else {
      EXPECT_NEAR(sum / changed, 0, 5 / std::sqrt(changed));
      EXPECT_NEAR(squares / changed, 1, 10 / std::sqrt(changed));
    }
  }
}

// timm's "rand": one normal number a channel. Over many parts they are normal.
TEST(RandomErasing, GivesAChannelOneNumber) {
  const ImageSize size{6, 8};
  const RandomErasingOptions options{.probability = 1, .value = ErasedValue::kChannelNoise};
  core::RandomStream random(4, "random_erasing");
  double sum = 0, squares = 0;
  int numbers = 0;
  while (numbers < 6000) {
    core::RandomStream again = random;
    std::vector<float> image(3 * 48, 50);
    erase(options, size, random, image.data());
    const auto part = draw_erased(options, size, again);
    if (!part) continue;
    for (int c = 0; c < 3; ++c) {
      const float number = image[static_cast<size_t>(c * 48 + part->y * 8 + part->x)];
      int same = 0;
      for (int i = 0; i < 48; ++i) same += image[static_cast<size_t>(c * 48 + i)] == number ? 1 : 0;
      if (part->height * part->width > 0) {
        EXPECT_EQ(same, part->height * part->width);
        sum += number;
        squares += number * number;
        ++numbers;
      }
    }
  }
  EXPECT_NEAR(sum / numbers, 0, 5 / std::sqrt(numbers));
  EXPECT_NEAR(squares / numbers, 1, 10 / std::sqrt(numbers));
}

TEST(RandomErasing, NeverAndOnTinyImages) {
  core::RandomStream random(3, "random_erasing");
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(draw_erased({}, {100, 100}, random).has_value());
    EXPECT_FALSE(draw_erased({.probability = 1, .min_area = 0.9F, .max_area = 1}, {1, 1}, random).has_value());
  }
}

TEST(RandomErasing, RefusesBadOptions) {
  EXPECT_NO_THROW(RandomErasingOptions{}.validate());
  EXPECT_THROW(RandomErasingOptions{.probability = 1.5F}.validate(), core::Error);
  EXPECT_THROW(RandomErasingOptions{.min_area = 0.5F}.validate(), core::Error);
  EXPECT_THROW(RandomErasingOptions{.min_aspect_ratio = 0}.validate(), core::Error);
  const RandomErasingOptions last{
      .probability = 1, .min_area = 0, .max_area = 1, .min_aspect_ratio = 2, .max_aspect_ratio = 2};
  EXPECT_NO_THROW(last.validate());
  RandomErasingOptions wrong = last;
  wrong.min_area = -0.25F;
  EXPECT_THAT(core::message_of([&] { wrong.validate(); }),
              core::Says("a probability of 0 to 1", "got probability 1, area -0.25 to 1, aspect ratio 2 to 2"));
  wrong = last;
  wrong.max_area = 1.25F;
  EXPECT_THROW(wrong.validate(), core::Error);
  wrong = last;
  wrong.max_aspect_ratio = 1.5F;
  EXPECT_THROW(wrong.validate(), core::Error);
  wrong = last;
  wrong.probability = -0.5F;
  EXPECT_THROW(wrong.validate(), core::Error);
}

// In 10 x 10 pixels, parts of 9 x 9 begin in one of two rows and one of two columns. No part is as high as the image.
TEST(RandomErasing, BeginsAtTheFirstAndTheLastPlaceThatFits) {
  core::RandomStream random(5, "random_erasing");
  const auto square = [](float area) {
    return RandomErasingOptions{
        .probability = 1, .min_area = area, .max_area = area, .min_aspect_ratio = 1, .max_aspect_ratio = 1};
  };
  std::set<std::pair<int, int>> places;
  for (int i = 0; i < 200; ++i) {
    const auto part = draw_erased(square(0.81F), {10, 10}, random);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->height, 9);
    EXPECT_EQ(part->width, 9);
    places.insert({part->y, part->x});
    EXPECT_FALSE(draw_erased(square(1), {10, 10}, random).has_value());
  }
  EXPECT_EQ(places, (std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

}  // namespace
}  // namespace trainyard::data::random_erasing_test
