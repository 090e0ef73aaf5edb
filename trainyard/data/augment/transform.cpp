#include "trainyard/data/augment/transform.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "trainyard/data/image/resize.h"

namespace trainyard::data {

void TransformOptions::validate() const {
  if (height < 1 || width < 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "image size is out of range",
                                                          .expected = "at least 1 x 1 pixels",
                                                          .actual = fmt::format("{} x {}", width, height)});
  }
  if (resize_method != "round_robin" && resize_method != "crop") static_cast<void>(data::resize_method(resize_method));
  crop.validate();
  auto_augment.validate();
  random_erasing.validate();
  const int64_t shorter = std::min(height, width);
  if (translate.value_or(0) < 0 || translate.value_or(0) >= shorter) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "images cannot be moved so far",
                                                          .expected = fmt::format("0 to {} pixels", shorter - 1),
                                                          .actual = fmt::format("{}", *translate),
                                                          .remedy = "pass a smaller --translate"});
  }
  if (cutout < 0 || cutout > shorter) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a square of this side cannot be cut out of the images",
                       .expected = fmt::format("0 to {} pixels", shorter),
                       .actual = fmt::format("{}", cutout),
                       .remedy = "pass a smaller --cutout"});
  }
  if (!(eval_central_part >= 0 && eval_central_part <= 1) || (eval_central_part > 0 && eval_resize_size != 0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the part of evaluation images that is cut out cannot be used",
                       .expected = "at most 1, and nothing beside an --eval_resize_size",
                       .actual = fmt::format("{}, resized to {}", eval_central_part, eval_resize_size)});
  }
  if (eval_resize_size != 0 && eval_resize_size < std::max(height, width)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "evaluation images are resized to less than is cut out of them",
                       .expected = fmt::format("at least {} pixels, or 0", std::max(height, width)),
                       .actual = fmt::format("{}", eval_resize_size),
                       .remedy = "pass a larger --eval_resize_size; 0 is 1.145 times the model's size"});
  }
}

void TransformOptions::set_size(int64_t new_height, int64_t new_width) {
  const int64_t before = std::max(height, width), now = std::max(new_height, new_width);
  height = new_height;
  width = new_width;
  if (eval_resize_size == 0 || before < 1 || now < 1) return;
  const double exact = static_cast<double>(eval_resize_size) * static_cast<double>(now) / static_cast<double>(before);
  eval_resize_size = std::max(now, static_cast<int64_t>(std::llround(exact)));
}

TransformRegistry& transforms() {
  static TransformRegistry registry("transform");
  return registry;
}

}  // namespace trainyard::data
