// What is said to be drawn is what happens: images are made again from it, step by step.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/imagenet_sampling.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/resize.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::transform_draw_test {
namespace {

Record jpeg_record(const Image& image) {
  return {.bytes = encode_jpeg(image, 95), .label = 1, .where = "shard-0 at offset 512"};
}

std::vector<float> apply_transform(const std::string& name, const TransformOptions& options, const Record& record,
                                   const SampleKey& key) {
  std::vector<float> out(3 * options.height * options.width);
  transforms().get(name)(options)->apply(record, key, out.data()).value();
  return out;
}

// An image of ImageNet's training by what was drawn, with the library's public parts alone.
std::vector<float> replay(const TransformOptions& options, const Record& record, const TransformDraw& draw,
                          const SampleKey& key) {
  const ImageSize size{static_cast<int>(options.height), static_cast<int>(options.width)};
  const int64_t pixels = options.height * options.width;
  std::vector<float> out(3 * pixels);
  const RecordImage part = record_image(record, draw.window).value();
  resize(part.pixels, size, {0, 0, size.height, size.width},
         {.method = resize_method(draw.resize_method), .mirror = draw.mirrored}, out.data());
  if (draw.colors) {
    for (float& value : out) value *= 1 / 255.0F;
    apply_color(ColorPlanes::of(out.data(), pixels), ImagenetSampling(options).color_distortion(key.batch_position),
                *draw.colors);
    for (float& value : out) value *= 255.0F;
  }
  PlanarImage planes{.height = size.height, .width = size.width};
  if (!draw.operations.empty()) {
    for (const float value : out) planes.pixels.push_back(static_cast<uint8_t>(std::lrint(value)));
    for (const AugmentStep& step : draw.operations) apply(step, options.auto_augment.pixels, planes);
    for (size_t i = 0; i < out.size(); ++i) out[i] = planes.pixels[i];
  }
  options.normalization.apply(out.data(), pixels);
  for (int64_t i = 0; draw.erased && i < 3 * pixels; ++i) {
    const int64_t y = i % pixels / size.width, x = i % size.width;
    const CropWindow& part_erased = *draw.erased;
    const bool inside = y >= part_erased.y && y < part_erased.y + part_erased.height && x >= part_erased.x &&
                        x < part_erased.x + part_erased.width;
    if (inside) out[static_cast<size_t>(i)] = 0;
  }
  return out;
}

// The box in the upper left of the stored image is in the lower right of one that is turned by half a circle. Windows
// have up to 74 of 100 rows and columns, so none covers four fifths of both.
TEST(TransformDraw, BoxesAreTurnedWithTheImage) {
  constexpr int kSide = 100, kUpsideDown = 3;
  Record record = jpeg_record(noisy_image(kSide, kSide));
  record.bytes = with_exif(record.bytes, kUpsideDown);
  record.boxes = {{0, 0, 0.5F, 0.5F}};
  TransformOptions options{.height = 32, .width = 32};
  options.crop.min_object_covered = 0.8F;
  options.crop.min_aspect_ratio = 0.9F;
  options.crop.max_aspect_ratio = 1.1F;
  options.crop.min_area = 0.36F;
  options.crop.max_area = 0.49F;
  options.crop.max_attempts = 10'000;
  for (const bool turned : {false, true}) {
    options.exif_orientation = turned;
    for (int64_t sample = 0; sample < 8; ++sample) {
      const TransformDraw draw = draw_transform("imagenet", options, record, {.seed = 7, .sample = sample}).value();
      for (const auto& [begin, size] :
           {std::pair{draw.window.y, draw.window.height}, {draw.window.x, draw.window.width}}) {
        EXPECT_LE(size, 80) << "all of the image, as where no window fits";
        if (turned) {
          EXPECT_GE(begin + size, 90) << sample;
        } else {
          EXPECT_LE(begin, 10) << sample;
        }
      }
    }
  }
}

TEST(TransformDraw, ATrainingImageIsMadeAgainFromIt) {
  const Record record = jpeg_record(noisy_image(90, 120));
  TransformOptions options{.height = 32, .width = 24, .resize_method = "round_robin"};
  options.auto_augment.policy = AutoAugmentPolicy::kTrivial;
  options.random_erasing.probability = 0.5F;
  int mirrored = 0, erased = 0;
  for (int64_t sample = 0; sample < 24; ++sample) {
    const SampleKey key{.seed = 7, .epoch = 2, .sample = sample, .batch_position = sample};
    const TransformDraw draw = draw_transform("imagenet", options, record, key).value();
    EXPECT_TRUE(check_inside(draw.window, {90, 120}).ok());
    EXPECT_EQ(draw.operations.size(), 1U);
    ASSERT_TRUE(draw.colors.has_value());
    mirrored += draw.mirrored ? 1 : 0;
    erased += draw.erased ? 1 : 0;
    const std::vector<float> expected = apply_transform("imagenet", options, record, key);
    const std::vector<float> again = replay(options, record, draw, key);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) core::take_worst(worst, std::abs(expected[i] - again[i]));
    EXPECT_LE(worst, 1e-5) << sample;
    EXPECT_EQ(draw_transform("imagenet", options, record, key).value(), draw) << "asked twice";
  }
  EXPECT_GT(mirrored, 3);
  EXPECT_GT(erased, 3);
}

TEST(TransformDraw, AnEvaluationDrawsNothing) {
  const Record record = jpeg_record(noisy_image(90, 120));
  TransformOptions options{.height = 32, .width = 32, .training = false};
  options.auto_augment.policy = AutoAugmentPolicy::kRand;
  options.random_erasing.probability = 1;
  TransformDraw whole;
  whole.window = {0, 0, 90, 120};
  EXPECT_EQ(draw_transform("imagenet", options, record, {.sample = 5}).value(), whole);
  options.eval_central_part = 0.5F;
  EXPECT_EQ(draw_transform("imagenet", options, record, {}).value().window, (CropWindow{22, 30, 46, 60}));
}

TEST(TransformDraw, SmallImagesTellTheirPaddedWindow) {
  const Record record = jpeg_record(noisy_image(32, 32));
  TransformOptions options{.height = 32, .width = 32};
  const RecordImage decoded = record_image(record).value();
  for (int64_t sample = 0; sample < 10; ++sample) {
    const SampleKey key{.seed = 1, .sample = sample};
    const TransformDraw draw = draw_transform("cifar10", options, record, key).value();
    std::vector<float> again(3 * 32 * 32);
    copy_window(decoded.pixels, draw.window.y, draw.window.x, {32, 32}, draw.mirrored, again.data());
    options.normalization.apply(again.data(), int64_t{32} * 32);
    EXPECT_EQ(again, apply_transform("cifar10", options, record, key)) << sample;
  }
}

TEST(TransformDraw, WhatCannotBeAskedIsSaid) {
  const Record bad{.bytes = {}, .where = "shard-0 at offset 512"};
  EXPECT_FALSE(draw_transform("imagenet", {}, bad, {}).ok());
  EXPECT_EQ(core::code_of([] { static_cast<void>(draw_transform("speech", {}, {}, {})); }), core::ErrorCode::kNotFound);
}

TEST(TransformDraw, TwoAreEqualWhereAllOfThemIs) {
  TransformDraw draw;
  draw.window = {1, 2, 3, 4};
  draw.colors = ColorDraw{};
  draw.operations = {{AugmentOp::kRotate, 3.0, AugmentSampling::kNearest}};
  draw.erased = CropWindow{5, 6, 7, 8};
  draw.cut_out = CropWindow{9, 8, 7, 6};
  const auto differs = [&](void (*change)(TransformDraw&)) {
    TransformDraw other = draw;
    change(other);
    return !(other == draw) && !(draw == other);
  };
  EXPECT_EQ(TransformDraw(draw), draw);
  EXPECT_TRUE(differs([](TransformDraw& d) { d.window.x = 0; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.mirrored = true; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.resize_method = "area"; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.colors->hue = 0.5F; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.colors.reset(); }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.operations[0].op = AugmentOp::kShearX; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.operations[0].magnitude = 4; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.operations[0].sampling = AugmentSampling::kBilinear; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.operations.clear(); }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.erased->height = 1; }));
  EXPECT_TRUE(differs([](TransformDraw& d) { d.cut_out.reset(); }));
}

}  // namespace
}  // namespace trainyard::data::transform_draw_test
