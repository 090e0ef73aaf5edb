#include "trainyard/data/augment/crop_margin.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trainyard/data/augment/imagenet_sampling.h"

namespace trainyard::data {

TransformOptions with_crop_margin(const TransformOptions& options, std::string_view transform) {
  TransformOptions wide = options;
  const int64_t longer = std::max(options.height, options.width);
  int64_t side = longer;  // to which the model's longer side grows
  if (transform == "imagenet" && options.eval_central_part > 0) {
    side = std::llround(static_cast<double>(longer) / static_cast<double>(options.eval_central_part));
    wide.eval_central_part = 1;
  } else if (transform == "imagenet") {
    // As evaluation_size() scales a square image.
    side = options.eval_resize_size > 0
               ? options.eval_resize_size
               : static_cast<int64_t>(static_cast<float>(longer) * ImagenetSampling::kEvaluationScale);
    wide.eval_resize_size = side;
  }
  if (side <= longer) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "five crops need images that are larger than the model's",
         .where = fmt::format("evaluation images of {}", transform),
         .expected = fmt::format("a shorter side of more than {} pixels", longer),
         .actual = std::to_string(side),
         .remedy = transform == "imagenet" ? "a larger --eval_resize_size, or --tta=flip" : "--tta=flip"});
  }
  wide.height = options.height * side / longer;
  wide.width = options.width * side / longer;
  return wide;
}

}  // namespace trainyard::data
