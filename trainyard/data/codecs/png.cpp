#include "trainyard/data/codecs/png.h"

#include <memory>

#include <fmt/core.h>
#include <spng.h>

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// Text, colour profiles and other chunks around the pixels: far more than any real image has.
constexpr size_t kMaxChunkBytes = size_t{16} << 20;

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Error png_error(int code) {
  return {ErrorCode::kCorruptData, {.problem = fmt::format("PNG cannot be decoded: {}", spng_strerror(code))}};
}

// A context over `bytes`, whose header has been read.
core::Result<Context> open(std::span<const std::byte> bytes, spng_ihdr* header) {
  Context context(spng_ctx_new(0));
  if (!context) return Error(ErrorCode::kNoSpace, "no memory for a PNG decoder");
  spng_set_chunk_limits(context.get(), kMaxChunkBytes, kMaxChunkBytes);
  if (int code = spng_set_png_buffer(context.get(), bytes.data(), bytes.size()); code != 0) return png_error(code);
  if (int code = spng_get_ihdr(context.get(), header); code != 0) return png_error(code);
  return context;
}

}  // namespace

core::Result<ImageSize> read_png_size(std::span<const std::byte> bytes) {
  spng_ihdr header{};
  if (auto context = open(bytes, &header); !context.ok()) return context.error();
  return ImageSize{static_cast<int>(header.height), static_cast<int>(header.width)};
}

core::Result<Image> decode_png(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                               const DecodeLimits& limits) {
  spng_ihdr header{};
  auto context = open(bytes, &header);
  if (!context.ok()) return context.error();
  const ImageSize size{static_cast<int>(header.height), static_cast<int>(header.width)};
  if (auto checked = check_size(size, limits); !checked.ok()) return checked.error();
  if (crop) {
    if (auto checked = check_inside(*crop, size); !checked.ok()) return checked.error();
  }

  Image image{.height = size.height, .width = size.width};
  const int64_t pixel_bytes = int64_t{3} * size.height * size.width;
  if (limits.before_allocation) limits.before_allocation(pixel_bytes);
  image.pixels.resize(pixel_bytes);
  if (int code = spng_decode_image(context.value().get(), image.pixels.data(), pixel_bytes, SPNG_FMT_RGB8, 0);
      code != 0) {
    return png_error(code);
  }
  // The checksum of the last chunk of pixels is behind them, and is read with what follows.
  if (int code = spng_decode_chunks(context.value().get()); code != 0) return png_error(code);
  if (crop) return copy_of(ImageView(image).part(*crop));
  return image;
}

}  // namespace trainyard::data
