#include "trainyard/data/image/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::data::color_test {
namespace {

constexpr int64_t kPixels = 500;

// Colours in [low, high), the first ones at the corners of the RGB cube, gray and black among them.
std::vector<float> colors(float low, float high) {
  core::RandomStream random(3, "colors");
  std::vector<float> planes(3 * kPixels);
  for (float& value : planes) value = random.uniform(low, high);
  for (int i = 0; i < 8; ++i) {
    for (int c = 0; c < 3; ++c) planes[c * kPixels + i] = static_cast<float>((i >> c) & 1);
  }
  for (int c = 0; c < 3; ++c) planes[c * kPixels + 8] = 0.5F;
  return planes;
}

using Rgb = std::array<double, 3>;

// HSV by the textbook (Foley, van Dam, "Computer Graphics", chapter 13): hue in degrees, one case for each sector.
std::array<double, 3> rgb_to_hsv(const Rgb& rgb) {
  const double high = std::max({rgb[0], rgb[1], rgb[2]});
  const double low = std::min({rgb[0], rgb[1], rgb[2]});
  const double delta = high - low;
  double hue = 0;
  if (delta > 0) {
    if (high == rgb[0]) hue = 60 * std::fmod((rgb[1] - rgb[2]) / delta + 6, 6);
    if (high == rgb[1]) hue = 60 * ((rgb[2] - rgb[0]) / delta + 2);
    if (high == rgb[2]) hue = 60 * ((rgb[0] - rgb[1]) / delta + 4);
  }
  return {hue, high > 0 ? delta / high : 0, high};
}

Rgb hsv_to_rgb(double hue, double saturation, double value) {
  const double chroma = value * saturation;
  const double sector = std::fmod(hue / 60 + 6, 6);
  const double middle = chroma * (1 - std::abs(std::fmod(sector, 2) - 1));
  const double low = value - chroma;
  static constexpr int kOrder[6][3] = {{2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {0, 1, 2}, {1, 0, 2}, {2, 0, 1}};
  const double parts[3] = {low, low + middle, low + chroma};
  const int* order = kOrder[static_cast<int>(sector)];
  return {parts[order[0]], parts[order[1]], parts[order[2]]};
}

template <typename Expected>
void expect_pixels(const std::vector<float>& before, const std::vector<float>& after, Expected expected,
                   double tolerance) {
  for (int64_t i = 0; i < kPixels; ++i) {
    const Rgb rgb = {before[i], before[kPixels + i], before[2 * kPixels + i]};
    const Rgb wanted = expected(rgb);
    for (int c = 0; c < 3; ++c) ASSERT_NEAR(after[c * kPixels + i], wanted[c], tolerance) << i << " channel " << c;
  }
}

// Compares what `adjust` makes of colours with `expected`, a function of hue, saturation and value.
template <typename Adjust, typename Expected>
void expect_adjusted(const Adjust& adjust, const Expected& expected, double tolerance) {
  const std::vector<float> before = colors(0, 1);
  std::vector<float> after = before;
  adjust(ColorPlanes::of(after.data(), kPixels));
  expect_pixels(
      before, after, [&](const Rgb& rgb) { return std::apply(expected, rgb_to_hsv(rgb)); }, tolerance);
}

TEST(Color, Saturation) {
  for (float factor : {0.0F, 0.5F, 1.0F, 1.5F}) {
    expect_adjusted([&](const ColorPlanes& planes) { adjust_saturation(planes, factor); },
                    [&](double hue, double saturation, double value) {
                      return hsv_to_rgb(hue, std::clamp(saturation * factor, 0.0, 1.0), value);
                    },
                    2e-6);
  }
}

TEST(Color, Hue) {
  for (float delta : {-0.2F, 0.0F, 0.13F, 0.2F, 0.9F}) {
    const auto turned = [&](double hue, double saturation, double value) {
      return hsv_to_rgb(hue + 360 * static_cast<double>(delta), saturation, value);
    };
    expect_adjusted([&](const ColorPlanes& planes) { adjust_hue(planes, delta); }, turned, 5e-6);
  }
}

// In terms of luma and the complex chroma I + iQ: luma stays, chroma is multiplied by factor * e^(i angle).
TEST(Color, HueAndSaturationInYiq) {
  const auto to_yiq = [](const Rgb& c) {
    return Rgb{0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2], 0.596 * c[0] - 0.274 * c[1] - 0.322 * c[2],
               0.211 * c[0] - 0.523 * c[1] + 0.312 * c[2]};
  };
  for (double angle : {-0.6, 0.0, 0.4}) {
    for (double factor : {0.5, 1.0, 1.5}) {
      const std::vector<float> before = colors(-0.1F, 1.1F);
      std::vector<float> after = before;
      adjust_hue_saturation_in_yiq(ColorPlanes::of(after.data(), kPixels), static_cast<float>(angle),
                                   static_cast<float>(factor));
      for (int64_t i = 0; i < kPixels; ++i) {
        const Rgb old_yiq = to_yiq({before[i], before[kPixels + i], before[2 * kPixels + i]});
        const Rgb new_yiq = to_yiq({after[i], after[kPixels + i], after[2 * kPixels + i]});
        ASSERT_NEAR(new_yiq[0], old_yiq[0], 2e-3);
        ASSERT_NEAR(new_yiq[1], factor * (old_yiq[1] * std::cos(angle) - old_yiq[2] * std::sin(angle)), 2e-3);
        ASSERT_NEAR(new_yiq[2], factor * (old_yiq[1] * std::sin(angle) + old_yiq[2] * std::cos(angle)), 2e-3);
      }
    }
  }
}

TEST(Color, BrightnessAndContrast) {
  const std::vector<float> before = colors(0, 1);
  std::vector<float> after = before;
  adjust_brightness(ColorPlanes::of(after.data(), kPixels), 0.125F);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i] + 0.125, 1e-6);

  after = before;
  adjust_contrast(ColorPlanes::of(after.data(), kPixels), 0.5F);
  for (int c = 0; c < 3; ++c) {
    double mean = 0;
    for (int64_t i = 0; i < kPixels; ++i) mean += before[c * kPixels + i] / static_cast<double>(kPixels);
    for (int64_t i = c * kPixels; i < (c + 1) * kPixels; ++i) {
      ASSERT_NEAR(after[i], 0.5 * (before[i] - mean) + mean, 1e-6);
    }
  }
}

// The steps of both orders, made one by one from the same draws.
TEST(Color, DistortionIsItsStepsInOrder) {
  for (bool in_yiq : {false, true}) {
    for (bool contrast_last : {false, true}) {
      std::vector<float> actual = colors(0, 1);
      core::RandomStream stream(9, "distort");
      distort_color(ColorPlanes::of(actual.data(), kPixels), {.in_yiq = in_yiq, .contrast_last = contrast_last},
                    stream);

      core::RandomStream draws(9, "distort");
      std::vector<float> expected = colors(0, 1);
      const ColorPlanes planes = ColorPlanes::of(expected.data(), kPixels);
      adjust_brightness(planes, draws.uniform(-32.0F / 255, 32.0F / 255));
      if (!contrast_last) adjust_contrast(planes, draws.uniform(0.5F, 1.5F));
      const float saturation = draws.uniform(0.5F, 1.5F);
      const float hue = draws.uniform(-0.2F, 0.2F);
      if (in_yiq) {
        adjust_hue_saturation_in_yiq(planes, hue * std::numbers::pi_v<float>, saturation);
      } else {
        adjust_saturation(planes, saturation);
        adjust_hue(planes, hue);
      }
      if (contrast_last) adjust_contrast(planes, draws.uniform(0.5F, 1.5F));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(actual[i], std::clamp(expected[i], 0.0F, 1.0F));
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::data::color_test
