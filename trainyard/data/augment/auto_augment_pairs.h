// AutoAugment's policies: 25 pairs of operations each, of which one is drawn for an image (Cubuk, Zoph, Mane,
// Vasudevan, Le, "AutoAugment: Learning Augmentation Policies from Data", 2019, tables 7 to 9).
#pragma once

#include <array>
#include <span>

#include "trainyard/data/augment/transform.h"

namespace trainyard::data {

struct AutoAugmentOperation {
  AugmentOp op = AugmentOp::kIdentity;
  int tenths = 0;     // of the images that it changes
  int magnitude = 0;  // of 9
};
using AutoAugmentPair = std::array<AutoAugmentOperation, 2>;

// Returns the pairs of kImagenet, kCifar10 or kSvhn; none for another policy.
std::span<const AutoAugmentPair> auto_augment_pairs(AutoAugmentPolicy policy);

}  // namespace trainyard::data
