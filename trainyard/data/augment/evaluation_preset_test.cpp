// What evaluation makes of images by each input preset, against the originals' own code: 200 random sizes a preset,
// tools/golden/evaluation_presets.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/imagenet_sampling.h"
#include "trainyard/data/augment/transform.h"

namespace trainyard::data::evaluation_preset_test {
namespace {

constexpr size_t kProbes = 6;

struct Case {
  std::string preset;
  ImageSize target, image, scaled;  // of resnet_n: the part that is cut out
  int64_t shorter = 0;
  int top = 0, left = 0;
  std::array<float, kProbes> values{};
};

std::vector<Case> read_cases() {
  std::istringstream lines(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/evaluation_presets.txt")));
  std::vector<Case> cases;
  Case c;
  while (lines >> c.preset >> c.target.height >> c.target.width >> c.shorter >> c.image.height >> c.image.width >>
         c.scaled.height >> c.scaled.width >> c.top >> c.left) {
    for (float& value : c.values) lines >> value;
    cases.push_back(c);
  }
  return cases;
}

TransformOptions options_of(const Case& c) {
  TransformOptions options = input_presets().get(c.preset);
  options.set_size(c.target.height, c.target.width);
  options.training = false;
  return options;
}

// The image of the script: cells of 3 x 3 pixels of random colours.
Record picture(ImageSize size) {
  Record record{.encoding = Encoding::kRawChw, .height = size.height, .width = size.width};
  record.bytes.reserve(size_t{3} * size.height * size.width);
  for (uint32_t c = 0; c < 3; ++c) {
    for (uint32_t y = 0; y < static_cast<uint32_t>(size.height); ++y) {
      for (uint32_t x = 0; x < static_cast<uint32_t>(size.width); ++x) {
        uint32_t v = (y / 3 * 73856093) ^ (x / 3 * 19349663) ^ (c * 83492791);
        v = (v ^ (v >> 13)) * 0x5bd1e995;
        record.bytes.push_back(static_cast<std::byte>((v ^ (v >> 15)) >> 24));
      }
    }
  }
  return record;
}

// Places in float [3, height, width].
std::array<int64_t, kProbes> probes(ImageSize size) {
  const int64_t height = size.height, width = size.width;
  const auto at = [&](int64_t row, int64_t column, int64_t channel) {
    return (channel * height + row) * width + column;
  };
  return {at(0, 0, 0),
          at(height - 1, width - 1, 1),
          at(height / 2, width / 3, 2),
          at(height / 5, width - 1, 0),
          at(height - 1, width / 7, 1),
          at(3 * height / 4, width / 2, 2)};
}

// In levels of 255. TensorFlow resizes to floats, Pillow (in two passes), DALI and OpenCV to whole values.
double tolerance(const std::string& preset) {
  const std::map<std::string, double> rounded = {
      {"torchvision", 1.01}, {"dali", 0.52}, {"paddle", 0.52}, {"tensorpack", 0.6}};
  const auto found = rounded.find(preset);
  return found == rounded.end() ? 0.02 : found->second;
}

TEST(EvaluationPreset, SizesAndCentresAreTheOriginalsFor200RandomSizesEach) {
  std::map<std::string, int> compared;
  for (const Case& c : read_cases()) {
    const TransformOptions options = options_of(c);
    EXPECT_EQ(options.eval_resize_size, c.shorter) << "in the ratio of 256 to 224";
    const ImageSampling sampling = ImagenetSampling(options).evaluation(c.image, {});
    const bool part = options.eval_central_part > 0;
    const CropWindow& window = part ? sampling.part : sampling.window;
    const ImageSize scaled = part ? ImageSize{window.height, window.width} : sampling.size;
    EXPECT_TRUE(scaled == c.scaled && window.y == c.top && window.x == c.left)
        << c.preset << ": " << c.image.height << " x " << c.image.width << " became " << scaled.height << " x "
        << scaled.width << " from (" << window.y << ", " << window.x << ") on, there " << c.scaled.height << " x "
        << c.scaled.width << " from (" << c.top << ", " << c.left << ") on";
    ++compared[c.preset];
  }
  for (const std::string& preset : input_presets().names()) EXPECT_EQ(compared[preset], 200) << preset;
}

TEST(EvaluationPreset, PixelsAreTheOriginals) {
  std::map<std::string, double> worst;
  for (const Case& c : read_cases()) {
    const TransformOptions options = options_of(c);
    std::vector<float> out(size_t{3} * c.target.height * c.target.width);
    transforms().get("imagenet")(options)->apply(picture(c.image), {}, out.data()).value();
    const std::array<int64_t, kProbes> places = probes(c.target);
    for (size_t i = 0; i < kProbes; ++i) {
      const int64_t plane = int64_t{c.target.height} * c.target.width;
      const float scale = options.normalization.scale[static_cast<size_t>(places[i] / plane)];
      const double levels = std::abs(static_cast<double>(out[static_cast<size_t>(places[i])]) - c.values[i]) / scale;
      EXPECT_LE(levels, tolerance(c.preset))
          << c.preset << ", " << c.image.height << " x " << c.image.width << ", probe " << i;
      worst[c.preset] = std::max(worst[c.preset], levels);
    }
  }
  EXPECT_EQ(worst.size(), input_presets().names().size());
}

}  // namespace
}  // namespace trainyard::data::evaluation_preset_test
