// Colours and whole inputs against TensorFlow and torchvision: within one level of 255 (tools/golden/transforms.py).
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/data/augment/crop.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/color.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::transform_golden_test {
namespace {

formats::NpyArray golden(const std::string& name) {
  return formats::read_npy(*core::local_file_system().open_read(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/" + name + ".npy")));
}

// The generated image of the script, [height, width, 3] there, planes here.
std::vector<uint8_t> generated(int height, int width) {
  const int plane = height * width;
  std::vector<uint8_t> planes(3 * plane);
  uint32_t state = 1;
  for (int i = 0; i < 3 * plane; ++i) {
    state = 1664525 * state + 1013904223;
    planes[i % 3 * plane + i / 3] = static_cast<uint8_t>(state >> 24);
  }
  return planes;
}

void expect_within(const std::vector<float>& actual, std::span<const float> expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    core::take_worst(worst, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

TEST(ColorGolden, IsTensorFlows) {
  const formats::NpyArray expected = golden("color");
  const std::vector<uint8_t> pixels = generated(9, 13);
  const auto brightness = [](ColorPlanes p) { adjust_brightness(p, 0.1F); };
  const auto saturation = [](ColorPlanes p) { adjust_saturation(p, 1.4F); };
  const auto hue = [](ColorPlanes p) { adjust_hue(p, -0.15F); };
  const auto contrast = [](ColorPlanes p) { adjust_contrast(p, 0.6F); };
  const auto yiq = [](ColorPlanes p) { adjust_hue_saturation_in_yiq(p, 0.15F * std::numbers::pi_v<float>, 1.4F); };
  const auto clip = [](ColorPlanes p) {
    for (int64_t i = 0; i < 3 * p.count; ++i) p.red[i] = std::clamp(p.red[i], 0.0F, 1.0F);
  };
  const std::vector<std::vector<std::function<void(ColorPlanes)>>> chains = {
      {brightness},
      {saturation},
      {hue},
      {contrast},
      {yiq},
      {brightness, saturation, hue, contrast, clip},
      {brightness, contrast, saturation, hue, clip},
      {brightness, yiq, contrast, clip},
      {brightness, contrast, yiq, clip}};
  for (size_t i = 0; i < chains.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<float> image(pixels.size());
    for (size_t k = 0; k < image.size(); ++k) image[k] = static_cast<float>(pixels[k]) / 255;
    for (const auto& step : chains[i]) step(ColorPlanes::of(image.data(), 9 * 13));
    const bool in_yiq = i == 4 || i > 6;  // TensorFlow 2 has that matrix with more digits
    expect_within(image, expected.values<float>().subspan(i * image.size(), image.size()), in_yiq ? 1 / 255.0 : 2e-5);
  }
}

std::vector<float> transformed(const TransformOptions& options, int64_t place) {
  const std::vector<uint8_t> planes = generated(60, 45);
  Record record{.encoding = Encoding::kRawChw, .height = 60, .width = 45};
  for (uint8_t value : planes) record.bytes.push_back(std::byte{value});
  std::vector<float> out(3 * options.height * options.width);
  transforms()
      .get("imagenet")(options)
      ->apply(record, {.seed = 1, .epoch = 0, .sample = place, .batch_position = place}, out.data())
      .value();
  return out;
}

TransformOptions evaluation(const std::string& preset) {
  TransformOptions options = input_presets().get(preset);
  options.height = options.width = 24;
  options.training = false;
  if (options.eval_resize_size > 0) options.eval_resize_size = 28;
  return options;
}

TEST(TransformGolden, EvaluationIsTensorFlowsAndTorchvisions) {
  const formats::NpyArray expected = golden("input_evaluation");
  std::vector<TransformOptions> cases = {
      evaluation("default"),     evaluation("default"), evaluation("official_models_imagenet"),
      evaluation("torchvision"), evaluation("default"), evaluation("resnet_n")};
  cases[1].resize_method = "bicubic";
  cases[4].resize_method = "crop";
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<float> out = transformed(cases[i], 0);
    // A level of 255 in the units of the output; the largest of the channels' scales.
    const Rgb& scale = cases[i].normalization.scale;
    expect_within(out, expected.values<float>().subspan(i * out.size(), out.size()),
                  0.1 * std::max({scale[0], scale[1], scale[2]}));
  }
}

TEST(TransformGolden, TrainingIsTensorFlows) {
  const formats::NpyArray expected = golden("input_training");
  for (int64_t i = 0; i < 17; ++i) {
    SCOPED_TRACE(i);
    TransformOptions options{.height = 24, .width = 24, .resize_method = "round_robin"};
    options.distort_color_in_yiq = i < 8;
    options.alternate_color_order = i < 16;
    const std::vector<float> out = transformed(options, i < 16 ? i % 8 : 1);
    expect_within(out, expected.values<float>().subspan(i * out.size(), out.size()),
                  (options.distort_color_in_yiq ? 1.0 : 0.1) / 127.5);
  }
}

// The table of draws in the script is what this seed draws.
TEST(TransformGolden, DrawsAreTheScripts) {
  core::RandomStream random(1, "augment", {0, 1});
  EXPECT_EQ(sample_crop({60, 45}, {}, {}, random), (CropWindow{20, 22, 17, 20}));
  EXPECT_FALSE(random.next_bool());
  EXPECT_FLOAT_EQ(random.uniform(-32.0F / 255, 32.0F / 255), -0.0699757636F);
  EXPECT_FLOAT_EQ(random.uniform(0.5F, 1.5F), 0.832493007F);  // contrast first at odd places
  EXPECT_FLOAT_EQ(random.uniform(0.5F, 1.5F), 1.48493934F);
  EXPECT_FLOAT_EQ(random.uniform(-0.2F, 0.2F), 0.0198609084F);
}

}  // namespace
}  // namespace trainyard::data::transform_golden_test
