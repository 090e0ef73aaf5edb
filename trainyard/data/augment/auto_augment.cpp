#include "trainyard/data/augment/auto_augment.h"

#include <cmath>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/augment/auto_augment_pairs.h"
#include "trainyard/data/augment/timm_rand_augment.h"

namespace trainyard::data {
namespace {

constexpr int kDrawn = 14;  // the operations before kInvert, in torchvision's order

constexpr int kPairBins = 10;

bool has_sign(AugmentOp op) {
  return op >= AugmentOp::kShearX && op <= AugmentOp::kSharpness;
}

AugmentStep with_drawn_sign(AugmentOp op, float magnitude, core::RandomStream& random) {
  return {op, has_sign(op) && random.next_bool() ? -magnitude : magnitude};
}

std::vector<AugmentStep> draw_pair(AutoAugmentPolicy policy, ImageSize image, core::RandomStream& random) {
  const auto pairs = auto_augment_pairs(policy);
  std::vector<AugmentStep> steps;
  for (const AutoAugmentOperation& each : pairs[random.below(pairs.size())]) {
    if (static_cast<int>(random.below(10)) >= each.tenths) continue;
    steps.push_back(with_drawn_sign(each.op, magnitude_of(policy, each.op, each.magnitude, image), random));
  }
  return steps;
}

}  // namespace

AutoAugmentPolicy auto_augment_policy(std::string_view name) {
  if (name == "none") return AutoAugmentPolicy::kNone;
  if (name == "rand") return AutoAugmentPolicy::kRand;
  if (name == "trivial") return AutoAugmentPolicy::kTrivial;
  if (name == "timm_rand") return AutoAugmentPolicy::kTimmRand;
  if (name == "imagenet") return AutoAugmentPolicy::kImagenet;
  if (name == "cifar10") return AutoAugmentPolicy::kCifar10;
  if (name == "svhn") return AutoAugmentPolicy::kSvhn;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "unknown augmentation policy",
                     .expected = "none, rand, trivial, timm_rand, imagenet, cifar10 or svhn",
                     .actual = fmt::format("'{}'", name)});
}

void AutoAugmentOptions::validate() const {
  const bool timm = policy == AutoAugmentPolicy::kTimmRand;
  const int most = timm ? kMostTimmLevel : kMagnitudeBins - 1;
  if (num_ops < 1 || magnitude < 0 || magnitude > most) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "augmentation options are out of range",
                       .expected = fmt::format("at least 1 operation, a magnitude of 0 to {}", most),
                       .actual = fmt::format("{} and {}", num_ops, magnitude)});
  }
  if (!(magnitude_std >= 0 && std::isfinite(magnitude_std))) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the standard deviation of augmentations' magnitude is out of range",
                       .expected = "0 or more",
                       .actual = fmt::format("{}", magnitude_std)});
  }
  const bool of_timm = pixels.sampling == AugmentSampling::kBicubic || pixels.sampling == AugmentSampling::kRandom;
  if (timm ? pixels.sampling == AugmentSampling::kNearest : of_timm) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "augmentations do not sample in this way",
                       .expected = timm ? "bilinear, bicubic or random for timm's RandAugment"
                                        : "nearest or bilinear for torchvision's policies",
                       .remedy = "choose another AugmentOptions::sampling (--auto_augment_interpolation)"});
  }
  for (const float value : pixels.fill) {
    if (value >= 0 && value <= 255) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the fill of augmentations is no pixel",
                                                          .expected = "values of 0 to 255",
                                                          .actual = fmt::format("{}", value)});
  }
}

float magnitude_of(AutoAugmentPolicy policy, AugmentOp op, int bin, ImageSize image) {
  const bool wide = policy == AutoAugmentPolicy::kTrivial;
  const int bins = auto_augment_pairs(policy).empty() ? kMagnitudeBins : kPairBins;
  const double part = static_cast<double>(bin) / (bins - 1);
  const auto of = [&](double rand, double trivial) { return static_cast<float>(part * (wide ? trivial : rand)); };
  switch (op) {
    case AugmentOp::kShearX:
    case AugmentOp::kShearY:
      return of(0.3, 0.99);
    case AugmentOp::kTranslateX:
      return of(150.0 / 331 * image.width, 32);
    case AugmentOp::kTranslateY:
      return of(150.0 / 331 * image.height, 32);
    case AugmentOp::kRotate:
      return of(30, 135);
    case AugmentOp::kBrightness:
    case AugmentOp::kColor:
    case AugmentOp::kContrast:
    case AugmentOp::kSharpness:
      return of(0.9, 0.99);
    case AugmentOp::kPosterize:
      return 8 - std::nearbyint(of(4, 6));
    case AugmentOp::kSolarize:
      return 255 - of(255, 255);
    case AugmentOp::kIdentity:
    case AugmentOp::kAutoContrast:
    case AugmentOp::kEqualize:
    case AugmentOp::kInvert:
    case AugmentOp::kSolarizeAdd:
      return 0;
  }
  return 0;
}

std::vector<AugmentStep> draw_steps(const AutoAugmentOptions& options, ImageSize image, core::RandomStream& random) {
  if (options.policy == AutoAugmentPolicy::kNone) return {};
  if (options.policy == AutoAugmentPolicy::kTimmRand) return draw_timm_steps(options, random);
  if (!auto_augment_pairs(options.policy).empty()) return draw_pair(options.policy, image, random);
  const bool wide = options.policy == AutoAugmentPolicy::kTrivial;
  std::vector<AugmentStep> steps;
  for (int i = 0; i < (wide ? 1 : options.num_ops); ++i) {
    const auto op = static_cast<AugmentOp>(random.below(kDrawn));
    const int bin = wide ? static_cast<int>(random.below(kMagnitudeBins)) : options.magnitude;
    const float magnitude = magnitude_of(options.policy, op, bin, image);
    steps.push_back(with_drawn_sign(op, magnitude, random));
  }
  return steps;
}

}  // namespace trainyard::data
