// The augmentations that come after crop, flip and colours, for all transforms. Each draws from a stream of its own, so
// that switching one on leaves what the others draw. Evaluation is left alone.
#pragma once

#include "trainyard/data/augment/transform.h"

namespace trainyard::data {

// options.auto_augment on `image`: float [3, height, width] in [0, 255], rounded to whole values first.
void apply_auto_augment(const TransformOptions& options, const SampleKey& key, float* image);

// options.random_erasing on a normalized image.
void apply_random_erasing(const TransformOptions& options, const SampleKey& key, float* image);

}  // namespace trainyard::data
