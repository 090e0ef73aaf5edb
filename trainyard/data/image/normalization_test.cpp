#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data::normalization_test {
namespace {

// Each channel's values 0, 100 and 255, by definition in double.
template <typename Expected>
void expect_values(const Normalization& normalization, Expected expected) {
  const std::vector<float> pixels = {0, 100, 255};
  std::vector<float> image;
  for (int c = 0; c < 3; ++c) image.insert(image.end(), pixels.begin(), pixels.end());
  normalization.apply(image.data(), 3);
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(image[3 * c + i], expected(static_cast<double>(pixels[i]), c), 1e-5 * 255);
  }
}

TEST(Normalization, IsWhatItsNameSays) {
  const Rgb mean = {123.675F, 116.28F, 103.53F}, deviation = {58.395F, 57.12F, 57.375F};
  expect_values(Normalization::symmetric(), [](double pixel, int) { return pixel / 127.5 - 1; });
  expect_values(Normalization::minus_mean(mean), [&](double pixel, int c) { return pixel - mean[c]; });
  expect_values(Normalization::standardized(mean, deviation),
                [&](double pixel, int c) { return (pixel - mean[c]) / deviation[c]; });
}

TEST(Normalization, RefusesDeviationsThatAreNotPositive) {
  EXPECT_THROW(Normalization::standardized({0, 0, 0}, {1, 0, 1}), core::Error);
  EXPECT_THROW(Normalization::standardized({0, 0, 0}, {1, 1, -1}), core::Error);
}

TEST(Normalization, ConstantsAreTheFractionsOf255) {
  const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
  for (int c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(kImagenetMean[c], static_cast<float>(255 * mean[c]));
    EXPECT_FLOAT_EQ(kImagenetStandardDeviation[c], static_cast<float>(255 * deviation[c]));
  }
}

TEST(Normalization, SaysWhichDeviationIsNotPositive) {
  EXPECT_EQ(core::message_of([] {
              Normalization::standardized({0, 0, 0}, {1, 1, -0.5F});
            }),
            "standard deviation of a channel is out of range: expected above 0, got -0.5");
}

}  // namespace
}  // namespace trainyard::data::normalization_test
