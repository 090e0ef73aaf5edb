// How an evaluation scales an image to a given shorter side and crops the centre. Programs round differently, which
// moves pixels:
//
//   plain        sides rounded down, in whole numbers; half of the margin, rounded down
//   tensorflow   both sides computed in single precision and rounded down, so that the shorter one may come out a pixel
//                short; half of the margin, rounded down. official/r1/resnet of tensorflow/models
//   torchvision  sides as `plain`; half of the margin, a half rounded to the even number; values are cut off at 0 and
//                255. Resize and CenterCrop of images of whole values
//   dali         sides rounded to the nearest, a half away from zero; pixels stay as far apart as the exact sides say,
//                about the image's centre (subpixel_scale); pixels outside of the image repeat its edge; half of the
//                margin, a half rounded up. fn.resize and fn.crop_mirror_normalize of NVIDIA DALI
//   opencv       the longer side rounded to the nearest; half of the margin, rounded down; pixels outside of the image
//                repeat its edge; bicubic is Keys' kernel with a = -0.75, and values are cut off at 0 and 255.
//                cv2.resize as Tensorpack calls it
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class ResizeConvention { kPlain, kTensorflow, kTorchvision, kDali, kOpencv };

// Returns the convention called "plain", "tensorflow", "torchvision", "dali" or "opencv". Throws kNotFound.
[[nodiscard]] ResizeConvention resize_convention(std::string_view name);
// Returns the convention's name.
[[nodiscard]] std::string_view resize_convention_name(ResizeConvention convention);

struct ScaledSize {
  ImageSize size{};
  // Distance in the image, in pixels, between neighbouring rows, and columns. 0: the image's side divided by the scaled
  // one.
  float row_step = 0, column_step = 0;
};

// Returns the size of an image whose shorter side is scaled to `shorter` pixels. Neither may be empty.
[[nodiscard]] ScaledSize scale_to_shorter_side(ImageSize image, int64_t shorter, ResizeConvention convention);

// Returns how many pixels are cut off before the centre, when `margin` are cut off in all.
[[nodiscard]] int centre_start(int margin, ResizeConvention convention);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
