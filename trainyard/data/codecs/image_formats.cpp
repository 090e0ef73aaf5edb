#include "trainyard/data/codecs/image_formats.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/optional_codecs.h"
#include "trainyard/data/codecs/png.h"

// CMakeLists.txt of this room says which are there; null in the others.
#if TRAINYARD_HAS_WEBP
#define TRAINYARD_WEBP_CODE &read_webp_size, &decode_webp, &read_webp_orientation
#else
#define TRAINYARD_WEBP_CODE nullptr, nullptr, nullptr
#endif
#if TRAINYARD_HAS_GIF
#define TRAINYARD_GIF_CODE &read_gif_size, &decode_gif, nullptr
#else
#define TRAINYARD_GIF_CODE nullptr, nullptr, nullptr
#endif
#if TRAINYARD_HAS_BMP
#define TRAINYARD_BMP_CODE &read_bmp_size, &decode_bmp, nullptr
#else
#define TRAINYARD_BMP_CODE nullptr, nullptr, nullptr
#endif
#if TRAINYARD_HAS_TIFF
#define TRAINYARD_TIFF_CODE &read_tiff_size, &decode_tiff, &read_tiff_orientation
#else
#define TRAINYARD_TIFF_CODE nullptr, nullptr, nullptr
#endif

namespace trainyard::data {
namespace {

using Bytes = std::span<const std::byte>;

bool holds_at(Bytes bytes, size_t place, std::string_view magic) {
  return bytes.size() >= place + magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin() + static_cast<std::ptrdiff_t>(place),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

bool is_jpeg(Bytes bytes) {
  return holds_at(bytes, 0, "\xff\xd8");
}
bool is_png(Bytes bytes) {
  return holds_at(bytes, 0, "\x89PNG");
}
bool is_webp(Bytes bytes) {
  return holds_at(bytes, 0, "RIFF") && holds_at(bytes, 8, "WEBP");
}
bool is_gif(Bytes bytes) {
  return holds_at(bytes, 0, "GIF87a") || holds_at(bytes, 0, "GIF89a");
}
bool is_bmp(Bytes bytes) {
  return holds_at(bytes, 0, "BM");
}
bool is_tiff(Bytes bytes) {
  using namespace std::string_view_literals;
  return holds_at(bytes, 0, "II*\0"sv) || holds_at(bytes, 0, "MM\0*"sv) || holds_at(bytes, 0, "II+\0"sv) ||
         holds_at(bytes, 0, "MM\0+"sv);
}

core::Result<ImageSize> png_size(Bytes bytes, bool) {
  return read_png_size(bytes);
}
core::Result<Image> png(Bytes bytes, const std::optional<CropWindow>& crop, const DecodeOptions& options) {
  return decode_png(bytes, crop, options.limits);
}

std::string listed(const std::vector<std::string>& names) {
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

}  // namespace

const std::vector<ImageFormat>& image_formats() {
  static const std::vector<ImageFormat> formats = {
      {"JPEG", {"jpg", "jpeg"}, "", is_jpeg, &read_jpeg_size, &decode_jpeg, &read_jpeg_orientation},
      {"PNG", {"png"}, "", is_png, &png_size, &png, nullptr},
      {"WebP", {"webp"}, "libwebp-dev", is_webp, TRAINYARD_WEBP_CODE},
      {"GIF", {"gif"}, "libgif-dev", is_gif, TRAINYARD_GIF_CODE},
      {"BMP", {"bmp"}, "libstb-dev", is_bmp, TRAINYARD_BMP_CODE},
      {"TIFF", {"tif", "tiff"}, "libtiff-dev", is_tiff, TRAINYARD_TIFF_CODE},
  };
  return formats;
}

const ImageFormat* image_format_of(Bytes bytes) {
  const auto& formats = image_formats();
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const auto& each) { return each.matches(bytes); });
  return found == formats.end() ? nullptr : &*found;
}

std::string_view image_extension_of(Bytes bytes) {
  const ImageFormat* format = image_format_of(bytes);
  return format == nullptr ? image_formats().front().extensions.front() : format->extensions.front();
}

bool is_image_extension(std::string_view extension) {
  const auto& formats = image_formats();
  return std::any_of(formats.begin(), formats.end(), [&](const ImageFormat& format) {
    return std::find(format.extensions.begin(), format.extensions.end(), extension) != format.extensions.end();
  });
}

std::string image_format_names() {
  std::vector<std::string> names;
  for (const ImageFormat& format : image_formats()) names.emplace_back(format.name);
  return listed(names);
}

std::string image_extension_names() {
  std::vector<std::string> names;
  for (const ImageFormat& format : image_formats()) {
    for (const std::string_view extension : format.extensions) names.push_back(fmt::format(".{}", extension));
  }
  return listed(names);
}

}  // namespace trainyard::data
