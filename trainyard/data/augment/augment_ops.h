// The operations on images that RandAugment and TrivialAugment choose from, and inversion, as torchvision defines them
// for uint8 images (torchvision.transforms.functional): the same pixels, but for rounding by one level.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trainyard/data/base/kept_vector.h"

namespace trainyard::data {

// `pixels`: uint8 [3, height, width], RGB.
struct PlanarImage {
  int height = 0, width = 0;
  KeptVector<uint8_t> pixels;

  int64_t plane() const { return int64_t{height} * width; }
};

//                what the magnitude is                       with magnitude 0
enum class AugmentOp {
  kIdentity,      // -
  kShearX,        // columns a row, about the top left corner   unchanged
  kShearY,        // rows a column                              unchanged
  kTranslateX,    // columns to the right, cut to a whole one   unchanged
  kTranslateY,    // rows down                                  unchanged
  kRotate,        // degrees counter-clockwise about the centre unchanged
  kBrightness,    // towards black by -1, away from it above 0  unchanged
  kColor,         // towards gray                               unchanged
  kContrast,      // towards the mean gray                      unchanged
  kSharpness,     // towards a 3 x 3 blur                       unchanged
  kPosterize,     // bits that are kept
  kSolarize,      // values from it on are inverted
  kAutoContrast,  // -: each channel stretched to 0 .. 255
  kEqualize,      // -: each channel's histogram made flat
  kInvert,        // -
};
inline constexpr int kAugmentOps = 15;
std::string_view augment_op_name(AugmentOp op);  // torchvision's: "ShearX"

struct AugmentStep {
  AugmentOp op = AugmentOp::kIdentity;
  float magnitude = 0;
};

struct AugmentOptions {
  bool bilinear = false;  // else nearest: how shears, translations and rotations sample
  // What lies outside of the image. Where bilinear samples reach out, the two are mixed by their parts.
  std::array<float, 3> fill = {0, 0, 0};
};

// In place. The image must not be empty.
void apply(const AugmentStep& step, const AugmentOptions& options, PlanarImage& image);

}  // namespace trainyard::data
