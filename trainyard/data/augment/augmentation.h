// The augmentations that come after crop, flip and colours, for all transforms. Each draws from a stream of its own, so
// that switching one on does not change what the others draw. Images of an evaluation are left alone.
#pragma once

#include <optional>
#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/record_image.h"

namespace trainyard::data {

// The position of CIFAR's training crop: it begins at row `top` and column `left`, counted from the first pixel that is
// not padding.
struct PaddedCrop {
  int top = 0, left = 0;
  bool mirror = false;
  Border border = Border::kZeros;  // what padding is
};
// Draws the crop. Returns the image itself when options neither distort nor translate nor flip.
PaddedCrop draw_padded_crop(const TransformOptions& options, const SampleKey& key);
// Returns whether a training image is mirrored, by options.flip; `otherwise` where that is unset.
bool draw_flip(const TransformOptions& options, const SampleKey& key, Flip otherwise, core::RandomStream& random);
// Draw what the functions below apply, and nothing in an evaluation.
std::vector<AugmentStep> draw_auto_augment(const TransformOptions& options, const SampleKey& key);
std::optional<CropWindow> draw_random_erasing(const TransformOptions& options, const SampleKey& key);
std::optional<CropWindow> draw_cutout(const TransformOptions& options, const SampleKey& key);

// Applies options.auto_augment to `image`: float [3, height, width] in [0, 255], which is rounded to whole values
// first.
void apply_auto_augment(const TransformOptions& options, const SampleKey& key, float* image);

// Applies options.random_erasing and options.cutout to a normalized image.
void apply_erasures(const TransformOptions& options, const SampleKey& key, float* image);

}  // namespace trainyard::data
