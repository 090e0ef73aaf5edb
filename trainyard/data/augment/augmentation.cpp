#include "trainyard/data/augment/augmentation.h"

#include <algorithm>
#include <cmath>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/auto_augment.h"
#include "trainyard/data/augment/pillow_ops.h"
#include "trainyard/data/augment/random_erasing.h"

namespace trainyard::data {
namespace {

core::RandomStream stream_of(const SampleKey& key, std::string_view name) {
  return {key.seed, name, {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)}};
}

ImageSize size_of(const TransformOptions& options) {
  return {static_cast<int>(options.height), static_cast<int>(options.width)};
}

constexpr int kPadding = 4;  // pixels on each side

}  // namespace

PaddedCrop draw_padded_crop(const TransformOptions& options, const SampleKey& key) {
  if (!options.training) return {};
  core::RandomStream random = stream_of(key, "augment");
  const int padding = options.translate.value_or(options.distortions ? kPadding : 0);
  PaddedCrop crop{.border = options.translate ? Border::kReflected : Border::kZeros};
  crop.top = static_cast<int>(random.below(2 * padding + 1)) - padding;
  crop.left = static_cast<int>(random.below(2 * padding + 1)) - padding;
  crop.mirror = draw_flip(options, key, options.distortions ? Flip::kRandom : Flip::kNone, random);
  return crop;
}

bool draw_flip(const TransformOptions& options, const SampleKey& key, Flip otherwise, core::RandomStream& random) {
  const bool drawn = random.next_bool();  // always drawn: what is drawn after it does not depend on the flip
  switch (options.flip.value_or(otherwise)) {
    case Flip::kNone:
      return false;
    case Flip::kRandom:
      return drawn;
    case Flip::kAlternating:
      return core::RandomStream(key.seed, "flip", {static_cast<uint64_t>(key.sample)}).next_bool() !=
             (key.epoch % 2 != 0);
  }
  return false;
}

std::vector<AugmentStep> draw_auto_augment(const TransformOptions& options, const SampleKey& key) {
  if (!options.training) return {};
  core::RandomStream random = stream_of(key, "auto_augment");
  return draw_steps(options.auto_augment, size_of(options), random);
}

std::optional<CropWindow> draw_random_erasing(const TransformOptions& options, const SampleKey& key) {
  if (!options.training || options.random_erasing.probability <= 0) return std::nullopt;
  core::RandomStream random = stream_of(key, "random_erasing");
  return draw_erased(options.random_erasing, size_of(options), random);
}

std::optional<CropWindow> draw_cutout(const TransformOptions& options, const SampleKey& key) {
  if (!options.training || options.cutout == 0) return std::nullopt;
  core::RandomStream random = stream_of(key, "cutout");
  const ImageSize size = size_of(options);
  const int y = static_cast<int>(random.below(size.height - options.cutout + 1));
  const int x = static_cast<int>(random.below(size.width - options.cutout + 1));
  return CropWindow{y, x, options.cutout, options.cutout};
}

void apply_auto_augment(const TransformOptions& options, const SampleKey& key, float* image) {
  if (!options.training || options.auto_augment.policy == AutoAugmentPolicy::kNone) return;
  const ImageSize size = size_of(options);
  PlanarImage pixels{.height = size.height, .width = size.width};
  const int64_t count = 3 * pixels.plane();
  pixels.pixels.resize(count);
  // Unlike lrint, nearbyint is done to eight values at once.
  for (int64_t i = 0; i < count; ++i) {
    pixels.pixels[i] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(std::clamp(image[i], 0.0F, 255.0F))));
  }
  for (const AugmentStep& step : draw_auto_augment(options, key)) {
    if (options.auto_augment.policy == AutoAugmentPolicy::kTimmRand) {
      apply_pillow(step, options.auto_augment.pixels.fill, pixels);
    } else {
      apply(step, options.auto_augment.pixels, pixels);
    }
  }
  for (int64_t i = 0; i < count; ++i) image[i] = pixels.pixels[i];
}

void apply_erasures(const TransformOptions& options, const SampleKey& key, float* image) {
  if (options.training && options.random_erasing.probability > 0) {
    core::RandomStream random = stream_of(key, "random_erasing");
    erase(options.random_erasing, size_of(options), random, image);
  }
  if (const auto square = draw_cutout(options, key)) write_zeros(*square, size_of(options), image);
}

}  // namespace trainyard::data
