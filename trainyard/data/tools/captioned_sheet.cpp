#include "trainyard/data/tools/captioned_sheet.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/pixel_text.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {
namespace {

constexpr int kFieldGap = 6, kLineHeight = kLetterHeight + 2;  // pixels
constexpr uint8_t kPaper = 255;
constexpr int64_t kMostSheetPixels = 100'000'000;

[[noreturn]] void refuse(const std::string& problem, const std::string& expected, const std::string& actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .expected = expected, .actual = actual});
}

// Draws the image in the middle of a field, enlarged by the largest whole factor that fits.
void draw_enlarged(const Image& image, int side, Image& sheet, int field_top, int field_left) {
  const int factor = side / std::max(image.height, image.width);
  const int height = factor * image.height, width = factor * image.width;
  const int top = field_top + (side - height) / 2, left = field_left + (side - width) / 2;
  for (int y = 0; y < height; ++y) {
    const auto* const row = image.pixels.data() + ptrdiff_t{3} * (y / factor) * image.width;
    auto* out = sheet.pixels.data() + 3 * (static_cast<ptrdiff_t>(top + y) * sheet.width + left);
    for (int x = 0; x < width; ++x, out += 3) std::copy_n(row + ptrdiff_t{3} * (x / factor), 3, out);
  }
}

}  // namespace

Image thumbnail(const ImageView& image, int longest_side) {
  const double ratio = std::min(1.0, static_cast<double>(longest_side) / std::max(image.height, image.width));
  if (ratio == 1) return copy_of(image);
  const auto scaled = [&](int pixels) {
    return std::clamp(static_cast<int>(std::lround(pixels * ratio)), 1, longest_side);
  };
  Image small{.height = scaled(image.height), .width = scaled(image.width)};
  const size_t plane = static_cast<size_t>(small.height) * small.width;
  std::vector<float> planes(3 * plane);
  resize(image, {small.height, small.width}, {0, 0, small.height, small.width},
         {.antialias = true, .half_pixel_centers = true}, planes.data());
  small.pixels.resize(3 * plane);
  for (size_t i = 0; i < 3 * plane; ++i) {
    small.pixels[i] = static_cast<uint8_t>(std::lround(std::clamp(planes[i % 3 * plane + i / 3], 0.0F, 255.0F)));
  }
  return small;
}

Image captioned_sheet(const std::vector<CaptionedImage>& images, int side) {
  if (images.empty()) refuse("a sheet has no images", "at least one", "none");
  size_t lines = 0;
  for (const CaptionedImage& each : images) {
    lines = std::max(lines, each.lines.size());
    const int longer = std::max(each.image.height, each.image.width);
    if (longer > side || each.image.pixels.empty()) {
      refuse("an image does not fit into its field of a sheet", fmt::format("1 x 1 to {0} x {0} pixels", side),
             fmt::format("{} x {}", each.image.width, each.image.height));
    }
  }
  const int64_t cell_width = side + kFieldGap,
                cell_height = side + kFieldGap + static_cast<int64_t>(lines) * kLineHeight;
  const auto count = static_cast<int64_t>(images.size());
  const int64_t columns = std::clamp<int64_t>(
      std::llround(std::sqrt(static_cast<double>(count * cell_height) / static_cast<double>(cell_width))), 1, count);
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t height = rows * cell_height + kFieldGap, width = columns * cell_width + kFieldGap;
  if (height * width > kMostSheetPixels) {
    refuse("a sheet is too large", fmt::format("at most {} pixels", kMostSheetPixels),
           fmt::format("{} x {}", width, height));
  }
  Image sheet{.height = static_cast<int>(height), .width = static_cast<int>(width)};
  sheet.pixels.assign(static_cast<size_t>(3 * height * width), kPaper);
  for (int64_t k = 0; k < count; ++k) {
    const auto& [image, texts] = images[static_cast<size_t>(k)];
    const auto top = static_cast<int>(kFieldGap + k / columns * cell_height);
    const auto left = static_cast<int>(kFieldGap + k % columns * cell_width);
    draw_enlarged(image, side, sheet, top, left);
    for (size_t line = 0; line < texts.size(); ++line) {
      draw_text(sheet, left, top + side + 2 + static_cast<int>(line) * kLineHeight, left + side, texts[line]);
    }
  }
  return sheet;
}

}  // namespace trainyard::data
