// Policies that draw operations of augment_ops.h, with the spaces and magnitudes that torchvision or timm gives them:
//
//   rand     RandAugment: num_ops times one operation of 14 at one magnitude (Cubuk, Zoph, Shlens, Le, "RandAugment:
//            practical automated data augmentation with a reduced search space", 2020)
//   timm_rand  timm's RandAugment: num_ops times one operation of 15, each left out half of the time
//   (timm_rand_augment.h) trivial  TrivialAugmentWide: one operation of 14, at a magnitude drawn from a wide range
//   (Mueller, Hutter,
//            "TrivialAugment: tuning-free yet state-of-the-art data augmentation", 2021)
#pragma once

#include <string_view>
#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

AutoAugmentPolicy auto_augment_policy(
    std::string_view name);  // "none", "rand", "trivial", "timm_rand"; kInvalidArgument

// Returns the magnitude of an operation at bin [0, kMagnitudeBins), before a sign is drawn, and 0 for operations
// without a magnitude. Translations of kRand are fractions of the size `image`.
[[nodiscard]] float magnitude_of(AutoAugmentPolicy policy, AugmentOp op, int bin, ImageSize image);

// Draws the operations that one image goes through.
std::vector<AugmentStep> draw_steps(const AutoAugmentOptions& options, ImageSize image, core::RandomStream& random);

}  // namespace trainyard::data
