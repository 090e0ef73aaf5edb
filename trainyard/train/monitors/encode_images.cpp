#include "trainyard/train/monitors/encode_images.h"

#include <algorithm>

#include <ATen/ops/clamp.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/round.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/codecs/png_writer.h"

namespace trainyard::train {

void check_image(const std::string& name, const at::Tensor& image) {
  const bool one = image.dim() == 3 && image.size(2) == 3;
  const bool several = image.dim() == 4 && image.size(1) == 3;
  const bool right_type = image.scalar_type() == at::kByte || at::isFloatingType(image.scalar_type());
  if ((one || several) && image.numel() > 0 && right_type) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a monitor's image is of another form",
                     .where = name,
                     .expected = "[H, W, 3] or [N, 3, H, W], uint8 or a float type in [0, 1]",
                     .actual = fmt::format("[{}] {}", fmt::join(image.sizes(), ", "), toString(image.scalar_type()))});
}

std::vector<formats::EncodedImage> encode_images(const at::Tensor& image) {
  at::Tensor pixels = image.dim() == 4 ? image.permute({0, 2, 3, 1}) : image.unsqueeze(0);
  if (pixels.scalar_type() != at::kByte) {
    pixels = at::nan_to_num(pixels.to(at::kFloat), 0).clamp(0, 1).mul(255).round().to(at::kByte);
  }
  pixels = pixels.cpu().contiguous();
  std::vector<formats::EncodedImage> encoded;
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    data::Image one;
    one.height = static_cast<int>(pixels.size(1));
    one.width = static_cast<int>(pixels.size(2));
    const int64_t bytes = pixels.numel() / pixels.size(0);  // stride(0) of a single image may be another
    const uint8_t* const begin = pixels.const_data_ptr<uint8_t>() + i * bytes;
    one.pixels.resize(static_cast<size_t>(bytes));
    std::copy_n(begin, bytes, one.pixels.data());
    const std::vector<std::byte> png = data::encode_png(one);
    encoded.push_back({.height = one.height,
                       .width = one.width,
                       .channels = 3,
                       .data = std::string(reinterpret_cast<const char*>(png.data()), png.size())});
  }
  return encoded;
}

}  // namespace trainyard::train
