#include "trainyard/data/transform.h"

#include <array>

#include <fmt/core.h>

#include "trainyard/data/resize.h"

namespace trainyard::data {

void TransformOptions::validate() const {
  if (height < 1 || width < 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "image size is out of range",
                                                          .expected = "at least 1 x 1 pixels",
                                                          .actual = fmt::format("{} x {}", width, height)});
  }
  if (resize_method != "round_robin") static_cast<void>(data::resize_method(resize_method));
}

TransformRegistry& transforms() {
  static TransformRegistry registry("transform");
  return registry;
}

}  // namespace trainyard::data
