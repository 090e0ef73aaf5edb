// The operations on images from which RandAugment and TrivialAugment choose, and inversion, as torchvision defines them
// for uint8 images (torchvision.transforms.functional). The pixels are torchvision's, except for rounding by one level.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform_options.h"
#include "trainyard/data/base/pooled_vector.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// An image as three planes. `pixels` is uint8 [3, height, width], RGB.
struct PlanarImage {
  int height = 0, width = 0;
  PooledVector<uint8_t> pixels{};

  int64_t plane() const { return int64_t{height} * width; }
};

// The operations. Each line says what the magnitude means and then what magnitude 0 does.
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

// Applies one operation in place. The image must not be empty.
void apply(const AugmentStep& step, const AugmentOptions& options, PlanarImage& image);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
