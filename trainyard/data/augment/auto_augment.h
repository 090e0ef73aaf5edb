// Policies that draw operations of augment_ops.h, with the spaces and magnitudes that torchvision or timm gives them:
//
//   rand     RandAugment: num_ops times one operation of 14 at one magnitude (Cubuk, Zoph, Shlens, Le, "RandAugment:
//            practical automated data augmentation with a reduced search space", 2020)
//   trivial  TrivialAugmentWide: one operation of 14, at a magnitude drawn from a wide range (Mueller, Hutter,
//            "TrivialAugment: tuning-free yet state-of-the-art data augmentation", 2021)
//   imagenet, cifar10, svhn  AutoAugment: one of 25 pairs of operations, each with its part of the images and its
//            magnitude (auto_augment_pairs.h)
//   timm_rand  timm's RandAugment: num_ops times one operation of 15, each left out half of the time
//            (timm_rand_augment.h)
#pragma once

#include <string_view>
#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the policy of a name: "none", "rand", "trivial", "timm_rand", "imagenet", "cifar10", "svhn". Throws
// kInvalidArgument for another.
AutoAugmentPolicy auto_augment_policy(std::string_view name);

// Returns the magnitude of an operation at bin [0, kMagnitudeBins), of AutoAugment's policies at [0, 10), before a sign
// is drawn, and 0 for operations without a magnitude. Translations of kRand and AutoAugment are fractions of the size
// `image`.
[[nodiscard]] float magnitude_of(AutoAugmentPolicy policy, AugmentOp op, int bin, ImageSize image);

// Draws the operations that one image goes through.
std::vector<AugmentStep> draw_steps(const AutoAugmentOptions& options, ImageSize image, core::RandomStream& random);

}  // namespace trainyard::data
