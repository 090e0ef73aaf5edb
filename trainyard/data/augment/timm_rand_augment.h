// timm's RandAugment (timm.data.auto_augment, "rand-m9-mstd0.5-inc1"): which operations of pillow_ops.h it draws, and
// their arguments.
#pragma once

#include <array>
#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"

namespace trainyard::data {

// The operations that it draws from, each as often as the others.
inline constexpr std::array<AugmentOp, 15> kTimmOperations = {
    AugmentOp::kAutoContrast, AugmentOp::kEqualize,   AugmentOp::kInvert,      AugmentOp::kRotate,
    AugmentOp::kPosterize,    AugmentOp::kSolarize,   AugmentOp::kSolarizeAdd, AugmentOp::kColor,
    AugmentOp::kContrast,     AugmentOp::kBrightness, AugmentOp::kSharpness,   AugmentOp::kShearX,
    AugmentOp::kShearY,       AugmentOp::kTranslateX, AugmentOp::kTranslateY};

// Returns the argument of an operation at a level of [0, kMostTimmLevel]: AugmentStep::magnitude of pillow_ops.h.
// `negated` is the sign that timm draws, for the operations that have one: rotation, shears, translations, and with
// `increasing` the four factors of colours.
[[nodiscard]] double timm_argument(AugmentOp op, bool increasing, double level, bool negated);

// Draws the operations that one image goes through: options.num_ops times an operation, each left out with probability
// 1/2, its level, its sign, and how it samples.
std::vector<AugmentStep> draw_timm_steps(const AutoAugmentOptions& options, core::RandomStream& random);

}  // namespace trainyard::data
