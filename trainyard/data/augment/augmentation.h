// The augmentations that come after crop, flip and colours, for all transforms. Each draws from a stream of its own, so
// that switching one on does not change what the others draw. Images of an evaluation are left alone.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Applies options.auto_augment to `image`: float [3, height, width] in [0, 255], which is rounded to whole values
// first.
void apply_auto_augment(const TransformOptions& options, const SampleKey& key, float* image);

// Applies options.random_erasing to a normalized image.
void apply_random_erasing(const TransformOptions& options, const SampleKey& key, float* image);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
