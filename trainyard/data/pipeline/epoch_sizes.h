// Sizes of images by epoch: small images first make a training cheaper (Tan and Le, "EfficientNetV2", 2021, section 4).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data {

// Images of this size from an epoch on.
struct EpochSize {
  int64_t from_epoch = 0;
  ImageSize size{};
  bool operator==(const EpochSize&) const = default;
};

// Reads "0:128,20:160x192,35:224": epochs that ascend from 0, with the side of a square or height x width in pixels. An
// empty text gives none. Throws kInvalidArgument for another text.
std::vector<EpochSize> parse_epoch_sizes(std::string_view text);

// Returns a transform for each size, for PipelineOptions::transforms_by_epoch. `make` makes each from `options` with
// that size.
[[nodiscard]] std::vector<EpochTransform> transforms_of(
    const std::vector<EpochSize>& sizes, const TransformOptions& options,
    const std::function<std::shared_ptr<const Transform>(const TransformOptions&)>& make);

}  // namespace trainyard::data
