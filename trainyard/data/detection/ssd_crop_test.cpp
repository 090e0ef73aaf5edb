// 1,000 random parts obey what the original demands of them.
#include "trainyard/data/detection/ssd_crop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/image/color.h"
#include "trainyard/data/image/resize.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::ssd_crop_test {
namespace {

std::vector<Box> random_boxes(core::RandomStream& random) {
  std::vector<Box> boxes(1 + random.below(6));
  for (Box& box : boxes) {
    const float y = random.uniform(0, 0.8F), x = random.uniform(0, 0.8F);
    box = {y, x, y + random.uniform(0.05F, 0.2F), x + random.uniform(0.05F, 0.2F)};
  }
  return boxes;
}

// In double precision, by the definition.
double overlap(const Box& a, const Box& b) {
  const auto area = [](double y0, double x0, double y1, double x1) {
    return std::max(y1 - y0, 0.0) * std::max(x1 - x0, 0.0);
  };
  const double both =
      area(std::max(a.ymin, b.ymin), std::max(a.xmin, b.xmin), std::min(a.ymax, b.ymax), std::min(a.xmax, b.xmax));
  return both / (area(a.ymin, a.xmin, a.ymax, a.xmax) + area(b.ymin, b.xmin, b.ymax, b.xmax) - both);
}

bool holds_centre(const Box& part, const Box& box) {
  const double y = (static_cast<double>(box.ymin) + box.ymax) / 2, x = (static_cast<double>(box.xmin) + box.xmax) / 2;
  return y > part.ymin && y < part.ymax && x > part.xmin && x < part.xmax;
}

TEST(SsdCrop, ThousandPartsObeyTheirBounds) {
  int whole = 0, overlaps_of_0_1 = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    core::RandomStream random(i, "crops");
    const std::vector<Box> boxes = random_boxes(random);
    const SsdCrop crop = draw_ssd_crop(boxes, random);
    const Box& part = crop.part;
    const double height = part.ymax - part.ymin, width = part.xmax - part.xmin;
    if (height == 1 && width == 1) {
      ++whole;
      EXPECT_EQ(crop.kept.size(), boxes.size());
    } else {
      EXPECT_GE(part.ymin, 0);
      EXPECT_GE(part.xmin, 0);
      EXPECT_LE(part.ymax, 1);
      EXPECT_LE(part.xmax, 1);
      EXPECT_GT(height, 0.3 - 1e-6);
      EXPECT_GT(width, 0.3 - 1e-6);
      EXPECT_LT(height / width, 2);
      EXPECT_LT(width / height, 2);
      EXPECT_FALSE(crop.kept.empty());
      double smallest = 1;
      for (size_t b = 0; b < boxes.size(); ++b) {
        smallest = std::min(smallest, overlap(part, boxes[b]));
        const bool kept = std::find(crop.kept.begin(), crop.kept.end(), b) != crop.kept.end();
        EXPECT_EQ(kept, holds_centre(part, boxes[b])) << i;
      }
      EXPECT_GT(smallest, 0) << "each box overlaps the part";
      if (smallest > 0.1) ++overlaps_of_0_1;
    }
    const std::vector<Box> cropped = crop_boxes(boxes, crop);
    ASSERT_EQ(cropped.size(), crop.kept.size());
    for (size_t k = 0; k < cropped.size(); ++k) {
      const Box& before = boxes[crop.kept[k]];
      EXPECT_GE(cropped[k].ymin, 0);
      EXPECT_LE(cropped[k].ymax, 1 + 1e-6);
      EXPECT_GT(cropped[k].ymax, cropped[k].ymin);
      EXPECT_GT(cropped[k].xmax, cropped[k].xmin);
      // Where it was in the image.
      EXPECT_NEAR(part.ymin + cropped[k].ymin * height, std::max(before.ymin, part.ymin), 1e-6);
      EXPECT_NEAR(part.xmin + cropped[k].xmax * width, std::min(before.xmax, part.xmax), 1e-6);
    }
  }
  // At least 1 of 7; more, since small boxes seldom overlap a part by much.
  EXPECT_GT(whole, 1000 / 7);
  EXPECT_LT(whole, 1000);
  EXPECT_GT(overlaps_of_0_1, 0);
}

// A box that is the whole image overlaps a part by its area, which makes the distribution simple. Two million parts
// drawn with NumPy: one of 50 holds with probability 1, 1, 1, 1, 0.9955 and 0.4143 for the smallest overlaps 0 to 0.9,
// and its area is then above 0.5 with 0.428, 0.429, 0.537, 1, 1 and 1. A pass ends with the whole image in 1 / 7, with
// a part in 6 / 7 of the mean of the former.
TEST(SsdCrop, DemandsTheOverlapThatItDraws) {
  const std::vector<Box> boxes = {{0, 0, 1, 1}};
  int whole = 0, above_half = 0, parts = 0;
  for (uint64_t i = 0; i < 40000; ++i) {
    core::RandomStream random(i, "whole");
    const SsdCrop crop = draw_ssd_crop(boxes, random);
    const double area = (crop.part.ymax - crop.part.ymin) * (crop.part.xmax - crop.part.xmin);
    if (area == 1) {
      ++whole;
      continue;
    }
    ++parts;
    above_half += area > 0.5 ? 1 : 0;
  }
  EXPECT_NEAR(whole / 40000.0, 0.156, 0.006);
  EXPECT_NEAR(static_cast<double>(above_half) / parts, 0.703, 0.01);
}

TEST(SsdCrop, WithoutBoxesOnlyTheWholeImageHolds) {
  core::RandomStream random(1, "none");
  const SsdCrop crop = draw_ssd_crop({}, random);
  EXPECT_EQ(crop.part.ymax, 1);
  EXPECT_TRUE(crop.kept.empty());
}

TEST(SsdDraw, MirroringMovesBoxes) {
  const std::vector<std::byte> jpeg = encode_jpeg(smooth_image(120, 200));
  const Record record{.bytes = jpeg, .boxes = {{0.1F, 0.2F, 0.5F, 0.9F}}, .box_labels = {7}};
  const TransformOptions options = ssd300_input(true);
  int mirrored = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const SsdDraw draw = draw_ssd(options, record, {.seed = seed}).value();
    const CropWindow& window = draw.window;
    EXPECT_LE(window.y + window.height, 120);
    EXPECT_LE(window.x + window.width, 200);
    ASSERT_EQ(draw.boxes.size(), 1U);
    EXPECT_EQ(draw.labels[0], 7);
    // In pixels of the image, within the rounding of the window to whole pixels.
    const auto pixel = [&](float x) {
      return window.x + (draw.mirrored ? 1 - x : x) * static_cast<float>(window.width);
    };
    const float left = pixel(draw.mirrored ? draw.boxes[0].xmax : draw.boxes[0].xmin);
    EXPECT_NEAR(left, std::max(40.0F, static_cast<float>(window.x)), 2.5) << seed;
    EXPECT_GE(draw.colors.brightness, -0.125F);
    EXPECT_LT(draw.colors.brightness, 0.125F);
    EXPECT_GE(draw.colors.contrast, 0.5F);
    EXPECT_LT(draw.colors.saturation, 1.5F);
    EXPECT_LT(std::abs(draw.colors.hue), 0.0501F);
    mirrored += draw.mirrored ? 1 : 0;
    EXPECT_EQ(draw_ssd(options, record, {.seed = seed}).value(), draw);
  }
  EXPECT_NEAR(mirrored, 100, 35);
  const SsdDraw whole = draw_ssd(ssd300_input(false), record, {.seed = 3}).value();
  EXPECT_EQ(whole.window, (CropWindow{0, 0, 120, 200}));
  EXPECT_FALSE(whole.mirrored);
  TransformOptions plain = options;
  plain.random_part = plain.distortions = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(draw_ssd(plain, record, {.seed = seed}).value(), whole) << "training on images as they are";
  }
  EXPECT_FALSE(draw_ssd(options, Record{.bytes = jpeg, .boxes = {{}}}, {}).ok()) << "a box without a label";
}

// What the model gets of a training sample is the window of the image, mirrored after scaling: without changes of
// colour, pixel by pixel what resizing by hand gives.
TEST(SsdTransform, PaintsTheWindowThatItDraws) {
  const Image image = decode_jpeg(encode_jpeg(smooth_image(120, 200))).value();
  const std::vector<std::byte> jpeg = encode_jpeg(smooth_image(120, 200));
  const Record record{.bytes = jpeg, .boxes = {{0.1F, 0.2F, 0.5F, 0.9F}}, .box_labels = {7}};
  TransformOptions options = ssd300_input(true);
  options.distortions = false;
  options.normalization = {.scale = {1, 1, 1}, .shift = {0, 0, 0}};
  const auto transform = transforms().get("coco")(options);
  std::vector<float> out(size_t{3} * 300 * 300);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SampleKey key{.seed = seed};
    const SsdDraw draw = draw_ssd(options, record, key).value();
    transform->apply(record, key, out.data()).value();
    for (const auto& [y, x] : {std::pair{0, 0}, std::pair{150, 77}, std::pair{299, 299}}) {
      const int column = draw.mirrored ? 299 - x : x;
      // TensorFlow 1's place of a pixel: i * scale, and the pixels around it.
      const double row_place = y * (draw.window.height / 300.0), column_place = column * (draw.window.width / 300.0);
      const auto at = [&](int dy, int dx, int channel) {
        const int py = std::min(static_cast<int>(row_place) + dy, draw.window.height - 1) + draw.window.y;
        const int px = std::min(static_cast<int>(column_place) + dx, draw.window.width - 1) + draw.window.x;
        return static_cast<double>(image.pixels[3 * (static_cast<size_t>(py) * 200 + px) + channel]);
      };
      const double fy = row_place - std::floor(row_place), fx = column_place - std::floor(column_place);
      for (int c = 0; c < 3; ++c) {
        const double expected =
            (1 - fy) * ((1 - fx) * at(0, 0, c) + fx * at(0, 1, c)) + fy * ((1 - fx) * at(1, 0, c) + fx * at(1, 1, c));
        EXPECT_NEAR(out[static_cast<size_t>(c) * 90'000 + static_cast<size_t>(y) * 300 + x], expected, 0.01) << seed;
      }
    }
  }
}

TEST(SsdDraw, TwoAreEqualWhereAllOfThemIs) {
  const SsdDraw draw{.window = {1, 2, 3, 4}, .boxes = {{0.1F, 0.2F, 0.3F, 0.4F}}, .labels = {7}};
  const auto differs = [&](void (*change)(SsdDraw&)) {
    SsdDraw other = draw;
    change(other);
    return !(other == draw) && !(draw == other);
  };
  EXPECT_TRUE(SsdDraw(draw) == draw);
  EXPECT_TRUE(differs([](SsdDraw& d) { d.window.y = 0; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.mirrored = true; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.colors.contrast = 2; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.labels[0] = 8; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.boxes[0].ymin = 0; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.boxes[0].xmin = 0; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.boxes[0].ymax = 0; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.boxes[0].xmax = 0; }));
  EXPECT_TRUE(differs([](SsdDraw& d) { d.boxes.clear(); }));
}

// The least and the largest of 1,000 draws are within 2 % of the ends: another is as likely as 2e-9.
TEST(SsdDraw, ChangesOfColourFillTheirRanges) {
  const Record record{.bytes = encode_jpeg(flat_image(20, 30, 9))};
  TransformOptions options = ssd300_input(true);
  options.random_part = false;
  ColorDraw least{.brightness = 9, .saturation = 9, .contrast = 9, .hue = 9};
  ColorDraw most{.brightness = -9, .saturation = -9, .contrast = -9, .hue = -9};
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const ColorDraw colors = draw_ssd(options, record, {.seed = seed}).value().colors;
    least.brightness = std::min(least.brightness, colors.brightness);
    least.saturation = std::min(least.saturation, colors.saturation);
    least.contrast = std::min(least.contrast, colors.contrast);
    least.hue = std::min(least.hue, colors.hue);
    most.brightness = std::max(most.brightness, colors.brightness);
    most.saturation = std::max(most.saturation, colors.saturation);
    most.contrast = std::max(most.contrast, colors.contrast);
    most.hue = std::max(most.hue, colors.hue);
  }
  EXPECT_NEAR(least.brightness, -0.125, 0.005);
  EXPECT_NEAR(most.brightness, 0.125, 0.005);
  EXPECT_NEAR(least.saturation, 0.5, 0.02);
  EXPECT_NEAR(most.saturation, 1.5, 0.02);
  EXPECT_NEAR(least.contrast, 0.5, 0.02);
  EXPECT_NEAR(most.contrast, 1.5, 0.02);
  EXPECT_NEAR(least.hue, -0.05, 0.002);
  EXPECT_NEAR(most.hue, 0.05, 0.002);
}

TEST(SsdTransform, ScalesAsItsOptionsSay) {
  const Image image = noisy_image(50, 70);
  const Record record{.bytes = encode_png(image)};
  for (const char* method : {"nearest", "bilinear", "bicubic", "area"}) {
    for (const bool antialias : {false, true}) {
      for (const bool half_pixel_centers : {false, true}) {
        TransformOptions options = ssd300_input(false);
        options.set_size(20, 30);
        options.resize_method = method;
        options.resize_antialias = antialias;
        options.resize_half_pixel_centers = half_pixel_centers;
        options.normalization = {.scale = {2, 3, 4}, .shift = {1, 0, -1}};
        std::vector<float> out(size_t{3} * 20 * 30), expected(out.size());
        transforms().get("coco")(options)->apply(record, {}, out.data()).value();
        resize(image, {20, 30}, {0, 0, 20, 30},
               {.method = resize_method(method),
                .antialias = antialias,
                .half_pixel_centers = half_pixel_centers,
                .scale = {2, 3, 4},
                .shift = {1, 0, -1}},
               expected.data());
        EXPECT_EQ(out, expected) << method << antialias << half_pixel_centers;
      }
    }
  }
}

// Half of the size is enough for the model's image. Each option counts for its own images alone.
TEST(SsdTransform, DecodesAtAPartOfTheSizeWhereThatIsAskedFor) {
  const Record record{
      .bytes = encode_jpeg(noisy_image(90, 130)), .boxes = {{0.1F, 0.2F, 0.5F, 0.9F}}, .box_labels = {7}};
  const auto made = [&](bool training, bool scaled, bool eval_scaled) {
    TransformOptions options = ssd300_input(training);
    options.set_size(40, 60);
    options.random_part = options.distortions = false;
    options.scaled_decode = scaled;
    options.eval_scaled_decode = eval_scaled;
    std::vector<float> out(size_t{3} * 40 * 60);
    transforms().get("coco")(options)->apply(record, {}, out.data()).value();
    return out;
  };
  for (const bool training : {false, true}) {
    EXPECT_NE(made(training, training, !training), made(training, false, false)) << training;
    EXPECT_EQ(made(training, !training, training), made(training, false, false)) << training;
  }
}

TEST(SsdDraw, AWindowHasAtLeastAPixel) {
  const Record record{.bytes = encode_jpeg(flat_image(1, 1, 9)), .boxes = {{0, 0, 1, 1}}, .box_labels = {7}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SsdDraw draw = draw_ssd(ssd300_input(true), record, {.seed = seed}).value();
    EXPECT_TRUE((draw.window == CropWindow{0, 0, 1, 1})) << seed;
  }
}

TEST(SsdDraw, BoxesAreMirroredWithTheirImage) {
  const Record record{.bytes = encode_jpeg(flat_image(20, 30, 9)), .boxes = {{0, 0, 1, 0.25F}}, .box_labels = {7}};
  int mirrored = 0, kept = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const SsdDraw draw = draw_ssd(ssd300_input(true), record, {.seed = seed}).value();
    if (!(draw.window == CropWindow{0, 0, 20, 30})) continue;
    ASSERT_EQ(draw.boxes.size(), 1U);
    EXPECT_FLOAT_EQ(draw.boxes[0].xmin, draw.mirrored ? 0.75F : 0) << seed;
    EXPECT_FLOAT_EQ(draw.boxes[0].xmax, draw.mirrored ? 1 : 0.25F) << seed;
    EXPECT_FLOAT_EQ(draw.boxes[0].ymax, 1) << seed;
    ++(draw.mirrored ? mirrored : kept);
  }
  EXPECT_GT(mirrored, 0);
  EXPECT_GT(kept, 0);
}

TEST(SsdTransform, ChangesColoursAsTheyWereDrawn) {
  const Record record{.bytes = encode_png(noisy_image(20, 30))};
  TransformOptions options = ssd300_input(true);
  options.set_size(20, 30);
  options.random_part = false;
  options.normalization = {.scale = {1 / 255.0F, 1 / 255.0F, 1 / 255.0F}, .shift = {0, 0, 0}};
  TransformOptions plain = options;
  plain.distortions = false;
  constexpr int64_t kPixels = 20 * 30;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const SampleKey key{.seed = seed};
    std::vector<float> out(size_t{3} * kPixels), expected(out.size());
    transforms().get("coco")(options)->apply(record, key, out.data()).value();
    transforms().get("coco")(plain)->apply(record, key, expected.data()).value();
    const ColorDraw colors = draw_ssd(options, record, key).value().colors;
    const ColorPlanes planes = ColorPlanes::of(expected.data(), kPixels);
    adjust_brightness(planes, colors.brightness);
    adjust_contrast(planes, colors.contrast);
    adjust_saturation(planes, colors.saturation);
    adjust_hue(planes, colors.hue);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-4) << seed << ' ' << i;
  }
}

}  // namespace
}  // namespace trainyard::data::ssd_crop_test
