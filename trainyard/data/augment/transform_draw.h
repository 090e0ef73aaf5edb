// Returns the random choices of a transform for a sample: for logs, for tests, and to see why an image looks as it
// does. A transform is a pure function of the record and of the sample's key, so this can be called at any time, before
// or after training:
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
  // The part of the image that becomes the model's input, after the rotation by EXIF data: in evaluation all of it, or
  // its centre. With "cifar10" and "shapes" it is in pixels of the resized image, and begins outside of the image when
  // the window contains padding.
  CropWindow window{};
  bool mirrored = false;                        // mirrored left to right
  std::string resize_method = "bilinear";       // the method at this position of the batch; "crop": nothing is scaled
  std::optional<ColorDraw> colors{};            // nullopt: colours are not changed
  std::vector<AugmentStep> operations{};        // the operations of AutoAugment's policies, in order
  std::optional<CropWindow> erased{};           // the erased window of the model's image
  bool operator==(const TransformDraw&) const;  // compares all of them
};

// Returns what the registered transform called `transform` draws for a sample whose record is `record`: only a window
// when `options` are not for training. Reads the size of the image and decodes nothing. Returns the error of a record
// whose size cannot be read. Throws kNotFound for a transform other than "imagenet", "cifar10" and "shapes", and
// kInvalidArgument for bad options.
core::Result<TransformDraw> draw_transform(const std::string& transform, const TransformOptions& options,
                                           const Record& record, const SampleKey& key);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
