// What a transform draws for a sample: for logs, for tests, and to see why an image looks as it does. A transform is a
// pure function of the record and of the sample's key, so that it can be asked at any time, before or after training:
//
//   const data::Record record = dataset.read(sample).value();
//   const auto drawn = data::draw_transform("imagenet", options, record, {.seed = 1, .epoch = 3, .sample = sample});
//   drawn.value().window;  // the part of the image that became the model's
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/color.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct TransformDraw {
  // The part of the image, after it was turned by its EXIF data, that becomes the model's: in evaluation all of it, or
  // its central part. With "cifar10" and "shapes" it is counted in pixels of the resized image, and begins outside of
  // it where padding is in the window.
  CropWindow window{};
  bool mirrored = false;                        // left and right
  std::string resize_method = "bilinear";       // which one it is at this place of the batch; "crop": nothing is scaled
  std::optional<ColorDraw> colors{};            // none: colours stay as they are
  std::vector<AugmentStep> operations{};        // of AutoAugment's policies, in their order
  std::optional<CropWindow> erased{};           // of the model's image
  bool operator==(const TransformDraw&) const;  // compares all of them
};

// Returns what the registered transform called `transform` draws for a sample whose record is `record`: where `options`
// say that it is no training, nothing but a window. Reads the size of the image and decodes nothing. Returns the error
// of a record whose size cannot be read. Throws kNotFound for a transform other than "imagenet", "cifar10" and
// "shapes", and kInvalidArgument for bad options.
[[nodiscard]] core::Result<TransformDraw> draw_transform(const std::string& transform, const TransformOptions& options,
                                                         const Record& record, const SampleKey& key);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
