#include "trainyard/data/augment/timm_rand_augment.h"

#include <algorithm>

namespace trainyard::data {
namespace {

constexpr double kPartOfSide = 0.45;  // that a translation of the greatest level moves

AugmentSampling draw_sampling(AugmentSampling asked, core::RandomStream& random) {
  const bool bicubic = random.next_bool();
  if (asked != AugmentSampling::kRandom) return asked;
  return bicubic ? AugmentSampling::kBicubic : AugmentSampling::kBilinear;
}

}  // namespace

double timm_argument(AugmentOp op, bool increasing, double level, bool negated) {
  const double part = level / kMostTimmLevel;
  const double sign = negated ? -1 : 1;
  switch (op) {
    case AugmentOp::kRotate:
      return sign * (part * 30);
    case AugmentOp::kShearX:
    case AugmentOp::kShearY:
      return sign * (part * 0.3);
    case AugmentOp::kTranslateX:
    case AugmentOp::kTranslateY:
      return sign * (part * kPartOfSide);
    case AugmentOp::kPosterize: {
      const int bits = static_cast<int>(part * 4);
      return increasing ? 4 - bits : bits;
    }
    case AugmentOp::kSolarize: {
      const int threshold = std::min(256, static_cast<int>(part * 256));
      return increasing ? 256 - threshold : threshold;
    }
    case AugmentOp::kSolarizeAdd:
      return std::min(128, static_cast<int>(part * 110));
    case AugmentOp::kColor:
    case AugmentOp::kContrast:
    case AugmentOp::kBrightness:
    case AugmentOp::kSharpness:
      return increasing ? std::max(0.1, 1.0 + sign * (part * 0.9)) : part * 1.8 + 0.1;
    case AugmentOp::kIdentity:
    case AugmentOp::kAutoContrast:
    case AugmentOp::kEqualize:
    case AugmentOp::kInvert:
      return 0;
  }
  return 0;
}

std::vector<AugmentStep> draw_timm_steps(const AutoAugmentOptions& options, core::RandomStream& random) {
  std::vector<AugmentStep> steps;
  for (int i = 0; i < options.num_ops; ++i) {
    const AugmentOp op = kTimmOperations[random.below(kTimmOperations.size())];
    const bool left_out = random.next_bool();
    const double level = std::clamp(options.magnitude + double{options.magnitude_std} * double{random.normal()}, 0.0,
                                    double{kMostTimmLevel});
    const bool negated = random.next_bool();
    const AugmentSampling sampling = draw_sampling(options.pixels.sampling, random);
    if (!left_out) steps.push_back({op, timm_argument(op, options.increasing, level, negated), sampling});
  }
  return steps;
}

}  // namespace trainyard::data
