#include "trainyard/data/image/resize_convention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "trainyard/core/base/enum_name.h"

namespace trainyard::data {
namespace {

constexpr std::array<const char*, 5> kNames = {"plain", "tensorflow", "torchvision", "dali", "opencv"};

// 64 bits: an image of one row of millions of pixels is scaled to more columns than an int can count.
constexpr double kMostPixelsOfASide = 1 << 30;

int to_side(double pixels) {
  return static_cast<int>(std::min(pixels, kMostPixelsOfASide));
}

// As single precision has it.
ScaledSize tensorflow_size(ImageSize image, float shorter) {
  const float ratio = shorter / static_cast<float>(std::min(image.height, image.width));
  const auto scaled = [&](int side) { return to_side(static_cast<float>(side) * ratio); };
  return {.size = {scaled(image.height), scaled(image.width)}};
}

ScaledSize dali_size(ImageSize image, float shorter) {
  const auto ratio_of = [&](int side) { return shorter / static_cast<float>(side); };
  const float ratio = std::max(ratio_of(image.height), ratio_of(image.width));
  const auto exact = [&](int side) {
    return ratio_of(side) == ratio ? shorter : static_cast<float>(side * static_cast<double>(ratio));
  };
  const float height = exact(image.height), width = exact(image.width);
  return {.size = {to_side(std::round(height)), to_side(std::round(width))},
          .row_step = static_cast<float>(image.height / static_cast<double>(height)),
          .column_step = static_cast<float>(image.width / static_cast<double>(width))};
}

ScaledSize opencv_size(ImageSize image, int64_t shorter) {
  const int shortest = std::min(image.height, image.width);
  const double ratio = static_cast<double>(shorter) / shortest;
  const auto scaled = [&](int side) { return to_side(side == shortest ? double(shorter) : ratio * side + 0.5); };
  return {.size = {scaled(image.height), scaled(image.width)}};
}

}  // namespace

ResizeConvention resize_convention(std::string_view name) {
  return core::enum_value<ResizeConvention>("convention of resizing", name, kNames);
}

std::string_view resize_convention_name(ResizeConvention convention) {
  return kNames.at(static_cast<size_t>(convention));
}

ScaledSize scale_to_shorter_side(ImageSize image, int64_t shorter, ResizeConvention convention) {
  switch (convention) {
    case ResizeConvention::kTensorflow:
      return tensorflow_size(image, static_cast<float>(shorter));
    case ResizeConvention::kDali:
      return dali_size(image, static_cast<float>(shorter));
    case ResizeConvention::kOpencv:
      return opencv_size(image, shorter);
    case ResizeConvention::kPlain:
    case ResizeConvention::kTorchvision:
      break;
  }
  const int64_t shortest = std::min(image.height, image.width);
  const auto scaled = [&](int64_t side) { return to_side(static_cast<double>(side * shorter / shortest)); };
  return {.size = {scaled(image.height), scaled(image.width)}};
}

int centre_start(int margin, ResizeConvention convention) {
  if (convention == ResizeConvention::kDali) return (margin + 1) / 2;
  // Rounds halves to the even number.
  if (convention == ResizeConvention::kTorchvision) return margin / 2 + (margin % 4 == 3 ? 1 : 0);
  return margin / 2;
}

}  // namespace trainyard::data
