// The common part of the transforms: a record's pixels, and windows of them that may reach beyond the image.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// A record's pixels, decoded now or earlier.
struct RecordImage {
  std::shared_ptr<const Image> owner;
  ImageView pixels;
};

// Returns the size of a record's image. Errors say where the record is.
core::Result<ImageSize> record_image_size(const Record& record, bool exif_orientation = false);
// Returns the pixels of a record, or `crop` of them. `options` are ignored for a record that is already decoded.
core::Result<RecordImage> record_image(const Record& record, const std::optional<CropWindow>& crop = {},
                                       const DecodeOptions& options = {});

// Returns the boxes of a record in the image that record_image() returns. A record's boxes count from the corner of the
// image as it is stored; a decoded record's are those of its image.
std::vector<Box> record_boxes(const Record& record, bool exif_orientation);

// Returns where the first pixel of a centred side of `target` pixels lies in a side of `size`. Negative when it is in
// the padding, as in TensorFlow's resize_image_with_crop_or_pad.
int centred_start(int size, int target);

// What lies outside of an image: zeros, or the image mirrored at its edge without repeating the edge, as PyTorch's
// "reflect" padding. The mirror reaches one pixel less than the image's side.
enum class Border { kZeros, kReflected };

// Copies the pixels from row `top` and column `left` on. With `mirror` the window is mirrored left to right. `out` is
// float [3, size.height, size.width], with values in [0, 255].
void copy_window(const ImageView& image, int top, int left, ImageSize size, bool mirror, float* out,
                 Border border = Border::kZeros);

}  // namespace trainyard::data
