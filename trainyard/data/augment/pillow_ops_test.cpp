#include "trainyard/data/augment/pillow_ops.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/timm_rand_augment.h"
#include "trainyard/data/testing/augment_cases.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::pillow_ops_test {
namespace {

constexpr Rgb kFill = {124, 116, 104};

// timm's operations at fixed levels: their arguments, and Pillow's pixels, without any difference.
TEST(PillowOps, AreTimmsBitForBit) {
  const std::string folder = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata");
  const formats::NpyArray golden =
      formats::read_npy(*core::local_file_system().open_read(core::join_path(folder, "pillow_ops.npy")));
  const auto expected = golden.values<uint8_t>();
  std::istringstream cases(core::local_file_system().read_file(core::join_path(folder, "pillow_ops.txt")));
  const PlanarImage image = golden_image(19, 26);
  std::string name, sampling, argument;
  int increasing = 0, negated = 0;
  double level = 0;
  size_t count = 0;
  while (cases >> name >> increasing >> level >> negated >> sampling >> argument) {
    SCOPED_TRACE(name + " " + std::to_string(level) + " " + sampling + " " + argument);
    const AugmentOp op = op_named(name);
    EXPECT_EQ(timm_argument(op, increasing != 0, level, negated != 0), std::stod(argument));
    PlanarImage out = image;
    apply_pillow(
        {op, std::stod(argument), sampling == "bilinear" ? AugmentSampling::kBilinear : AugmentSampling::kBicubic},
        kFill, out);
    const auto wanted = expected.subspan(count * image.pixels.size(), image.pixels.size());
    int different = 0;
    for (size_t i = 0; i < wanted.size(); ++i) different += out.pixels[i] != wanted[i] ? 1 : 0;
    EXPECT_EQ(different, 0);
    ++count;
  }
  EXPECT_EQ(count * image.pixels.size(), expected.size());
  EXPECT_GT(count, 100U);
}

TEST(PillowOps, NoBitsAreBlack) {
  EXPECT_EQ(timm_argument(AugmentOp::kPosterize, true, 10, false), 0);
  PlanarImage image = golden_image(19, 26);
  apply_pillow({AugmentOp::kPosterize, 0}, kFill, image);
  EXPECT_EQ(image.pixels, PooledVector<uint8_t>(image.pixels.size(), 0));
}

// The smallest images have neither an inside nor neighbours.
TEST(PillowOps, AllOperationsTakeImagesOfOnePixel) {
  for (int i = 0; i < kAugmentOps; ++i) {
    for (const double magnitude : {-1.0, 0.0, 0.3, 1.0, 9.0}) {
      for (const AugmentSampling sampling : {AugmentSampling::kBilinear, AugmentSampling::kBicubic}) {
        for (const auto& [height, width] : {std::pair{1, 1}, std::pair{1, 3}, std::pair{2, 1}}) {
          PlanarImage image = golden_image(height, width);
          apply_pillow({static_cast<AugmentOp>(i), magnitude, sampling}, kFill, image);
          EXPECT_EQ(image.pixels.size(), static_cast<size_t>(3 * height * width));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::data::pillow_ops_test
