// What the transforms share: a record's pixels, and windows of them that may reach beyond the image.
#pragma once

#include <memory>
#include <optional>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Pixels decoded now, or those that the record came with.
struct RecordImage {
  std::shared_ptr<const Image> owner;
  ImageView pixels;
};

// Errors say where the record is.
core::Result<ImageSize> record_image_size(const Record& record, bool exif_orientation = false);
// Of a record that came decoded, options have no meaning any more.
core::Result<RecordImage> record_image(const Record& record, const std::optional<CropWindow>& crop = {},
                                       const DecodeOptions& options = {});

// Where the first pixel of a centred side of `target` pixels lies in a side of `size`: negative in the padding, as
// TensorFlow's resize_image_with_crop_or_pad.
int centred_start(int size, int target);

// The pixels from row `top` and column `left` on, zeros outside of the image. mirror: left to right, after the cut.
// `out`: float [3, size.height, size.width], values in [0, 255].
void copy_window(const ImageView& image, int top, int left, ImageSize size, bool mirror, float* out);

}  // namespace trainyard::data
