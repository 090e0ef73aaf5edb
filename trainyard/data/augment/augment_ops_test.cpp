#include "trainyard/data/augment/augment_ops.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/augment_affine.h"
#include "trainyard/data/testing/augment_cases.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::augment_ops_test {
namespace {

const std::string kFolder = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata");

PlanarImage augmented(AugmentOp op, float magnitude, const AugmentOptions& options, PlanarImage image) {
  apply({op, magnitude}, options, image);
  return image;
}

TEST(AugmentOps, AreTorchvisions) {
  const formats::NpyArray golden =
      formats::read_npy(*core::local_file_system().open_read(core::join_path(kFolder, "augment_ops.npy")));
  const auto expected = golden.values<uint8_t>();
  std::istringstream cases(core::local_file_system().read_file(core::join_path(kFolder, "augment_ops.txt")));
  const PlanarImage image = golden_image(32, 44);
  std::string name, sampling;
  float magnitude = 0, fill = 0;
  size_t count = 0;
  while (cases >> name >> magnitude >> sampling >> fill) {
    SCOPED_TRACE(name + " " + std::to_string(magnitude) + " " + sampling);
    const PlanarImage out =
        augmented(op_named(name), magnitude,
                  {.sampling = sampling == "bilinear" ? AugmentSampling::kBilinear : AugmentSampling::kNearest,
                   .fill = {fill, fill, fill}},
                  image);
    const auto wanted = expected.subspan(count * image.pixels.size(), image.pixels.size());
    int worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(out.pixels[i] - wanted[i]));
    EXPECT_LE(worst, 1);
    ++count;
  }
  EXPECT_EQ(count * image.pixels.size(), expected.size());
  EXPECT_GT(count, 35u);
}

// The least value of a channel is its first pixel, the largest its last one.
TEST(AugmentOps, ContrastIsStretchedFromTheLeastToTheLargestPixel) {
  const PlanarImage image{.height = 1, .width = 3, .pixels = {10, 60, 110, 10, 60, 110, 10, 60, 110}};
  const PlanarImage out = augmented(AugmentOp::kAutoContrast, 0, {}, image);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(out.pixels[3 * c], 0);
    EXPECT_NEAR(out.pixels[3 * c + 1], 127.5, 0.5);
    EXPECT_EQ(out.pixels[3 * c + 2], 255);
  }
}

// All values of a channel are its least one and its largest one, too.
TEST(AugmentOps, AChannelOfOneValueIsNotStretched) {
  const PlanarImage image{.height = 1, .width = 2, .pixels = {77, 77, 10, 20, 0, 0}};
  EXPECT_EQ(augmented(AugmentOp::kAutoContrast, 0, {}, image).pixels, (PooledVector<uint8_t>{77, 77, 0, 255, 0, 0}));
}

// Grays of 199 and 100, as the sums are cut off: 149.5 on average, cut off again.
TEST(AugmentOps, NoContrastLeavesTheMeanOfTheGrays) {
  const PlanarImage image{.height = 1, .width = 2, .pixels = {200, 101, 200, 101, 200, 101}};
  EXPECT_EQ(augmented(AugmentOp::kContrast, -1, {}, image).pixels, PooledVector<uint8_t>(6, 149));
}

TEST(AugmentOps, SolarizeAddLeavesValuesFrom128On) {
  const PlanarImage image{.height = 1, .width = 2, .pixels = {0, 127, 128, 129, 255, 100}};
  EXPECT_EQ(augmented(AugmentOp::kSolarizeAdd, 20, {}, image).pixels,
            (PooledVector<uint8_t>{20, 147, 128, 129, 255, 120}));
  EXPECT_EQ(augmented(AugmentOp::kSolarizeAdd, 140, {}, image).pixels,
            (PooledVector<uint8_t>{140, 255, 128, 129, 255, 240}));
}

// A level has (1020 - 510) / 255 = 2 pixels: those of the largest value are not shared out.
TEST(AugmentOps, EqualizeLeavesOutThePixelsOfTheLargestValue) {
  PlanarImage image{.height = 30, .width = 34};
  for (int c = 0; c < 3; ++c) {
    for (const auto& [value, count] : {std::pair{0, 255}, std::pair{100, 255}, std::pair{200, 510}}) {
      image.pixels.insert(image.pixels.end(), static_cast<size_t>(count), static_cast<uint8_t>(value));
    }
  }
  const PlanarImage out = augmented(AugmentOp::kEqualize, 0, {}, image);
  for (int64_t c = 0; c < 3; ++c) {
    const auto at = [&](int64_t pixel) { return out.pixels[static_cast<size_t>(c * image.plane() + pixel)]; };
    EXPECT_EQ(at(0), 0);
    EXPECT_EQ(at(255), 128);
    EXPECT_EQ(at(1019), 255);
  }
}

// Where each place is in the middle between two pixels, too.
TEST(AugmentOps, AQuarterOfATurnIsTorchvisionsToTheBit) {
  const formats::NpyArray golden =
      formats::read_npy(*core::local_file_system().open_read(core::join_path(kFolder, "augment_rotations.npy")));
  auto expected = golden.values<uint8_t>();
  struct Case {
    float degrees;
    int height, width;
  };
  for (const Case& c : {Case{90, 7, 10}, Case{-90, 7, 10}, Case{90, 10, 7}, Case{90, 2, 5}, Case{-90, 31, 44},
                        Case{90, 45, 32}, Case{90, 20, 20}, Case{180, 9, 14}}) {
    const PlanarImage out = augmented(AugmentOp::kRotate, c.degrees, {}, golden_image(c.height, c.width));
    ASSERT_GE(expected.size(), out.pixels.size());
    const auto wanted = expected.first(out.pixels.size());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), out.pixels.begin()))
        << c.degrees << " degrees, " << c.height << " x " << c.width;
    expected = expected.subspan(out.pixels.size());
  }
  EXPECT_TRUE(expected.empty());
}

// Factor 1, shifts and angles of 0, all bits: the image as it was.
TEST(AugmentOps, MagnitudeZeroChangesNothing) {
  const PlanarImage image = golden_image(32, 44);
  for (int i = 0; i <= static_cast<int>(AugmentOp::kSharpness); ++i) {
    for (bool bilinear : {false, true}) {
      EXPECT_EQ(augmented(static_cast<AugmentOp>(i), 0,
                          {.sampling = bilinear ? AugmentSampling::kBilinear : AugmentSampling::kNearest}, image)
                    .pixels,
                image.pixels)
          << i;
    }
  }
  EXPECT_EQ(augmented(AugmentOp::kPosterize, 8, {}, image).pixels, image.pixels);
  EXPECT_EQ(augmented(AugmentOp::kSolarize, 256, {}, image).pixels, image.pixels);
}

TEST(AugmentOps, TranslationMovesWholePixels) {
  const PlanarImage image = golden_image(32, 44);
  const PlanarImage right = augmented(AugmentOp::kTranslateX, 3.7F, {.fill = {9, 8, 7}}, image);
  const PlanarImage up = augmented(AugmentOp::kTranslateY, -2, {.sampling = AugmentSampling::kBilinear}, image);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        const auto at = [&](const PlanarImage& of, int row, int column) {
          return static_cast<int>(of.pixels[c * of.plane() + static_cast<int64_t>(row) * of.width + column]);
        };
        ASSERT_EQ(at(right, y, x), x < 3 ? 9 - c : at(image, y, x - 3));
        ASSERT_EQ(at(up, y, x), y + 2 < image.height ? at(image, y + 2, x) : 0);
      }
    }
  }
}

// img * mask + (1 - mask) * fill with torchvision, where img has the zeros outside already: 0.5 * (0.5 * 200) + 0.5 *
// 100 for the last pixel, half of which is outside. Its fill of None adds nothing: 0.5 * 200.
TEST(AugmentOps, FillsTheEdgeOfABilinearImageAsTorchvision) {
  const auto moved_by_half = [](const AugmentOptions& options) {
    PlanarImage image{.height = 1, .width = 4, .pixels = {0, 10, 20, 200, 0, 10, 20, 200, 0, 10, 20, 200}};
    transform_affine({.x0 = 0.5F}, options, image);
    return image.pixels;
  };
  const PooledVector<uint8_t> filled = moved_by_half({.sampling = AugmentSampling::kBilinear, .fill = {100, 40, 0}});
  const std::vector<int> expected = {5, 15, 110, 100, 5, 15, 110, 70, 5, 15, 110, 50};
  EXPECT_EQ(std::vector<int>(filled.begin(), filled.end()), expected);
  const PooledVector<uint8_t> empty = moved_by_half({.sampling = AugmentSampling::kBilinear});
  EXPECT_EQ(empty[3], 100);
  EXPECT_EQ(empty[2], 110);
}

TEST(AugmentOps, OddImagesWork) {
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{1, 9}, std::pair{2, 2}, std::pair{3, 1}}) {
    for (int i = 0; i < kAugmentOps; ++i) {
      for (float magnitude : {-135.0F, 0.0F, 0.5F, 300.0F}) {
        for (uint8_t value : {uint8_t{0}, uint8_t{77}, uint8_t{255}}) {
          PlanarImage image{.height = height, .width = width};
          image.pixels.assign(3 * image.plane(), value);
          apply({static_cast<AugmentOp>(i), magnitude},
                {.sampling = magnitude > 0 ? AugmentSampling::kBilinear : AugmentSampling::kNearest}, image);
          EXPECT_EQ(static_cast<int64_t>(image.pixels.size()), 3 * image.plane());
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::data::augment_ops_test
