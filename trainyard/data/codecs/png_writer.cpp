#include "trainyard/data/codecs/png_writer.h"

#include <cstdlib>
#include <memory>

#include <fmt/core.h>
#include <spng.h>

namespace trainyard::data {

using core::Error;
using core::ErrorCode;

std::vector<std::byte> encode_png(const Image& image) {
  if (image.height < 1 || image.width < 1 || image.pixels.size() != size_t{3} * image.height * image.width) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "image to encode as PNG is empty or has other pixels than its size",
                 .actual = fmt::format("{} x {}", image.width, image.height)});
  }
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context(spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free);
  if (!context) throw Error(ErrorCode::kNoSpace, "no memory for a PNG encoder");
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(image.height);
  header.width = static_cast<uint32_t>(image.width);
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  size_t size = 0;
  int error = 0;
  spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  error = spng_set_ihdr(context.get(), &header);
  if (error == 0) {
    error =
        spng_encode_image(context.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  }
  if (error != 0) throw Error(ErrorCode::kNoSpace, fmt::format("PNG cannot be encoded: {}", spng_strerror(error)));
  const std::unique_ptr<void, void (*)(void*)> file(spng_get_png_buffer(context.get(), &size, &error), std::free);
  if (!file) throw Error(ErrorCode::kNoSpace, fmt::format("PNG cannot be encoded: {}", spng_strerror(error)));
  const auto* bytes = static_cast<const std::byte*>(file.get());
  return {bytes, bytes + size};
}

}  // namespace trainyard::data
