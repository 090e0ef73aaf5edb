// A file as JPEG, by our decoder and by libjpeg-turbo alone: both refuse it, or both have the same pixels, whole and in
// part. Where ours refuses what libjpeg takes is documented (docs/formats/images.md, Damaged files): data that end too
// early, and more than 500 scans.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/plain_jpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  constexpr int64_t kMostPixels = 1 << 13;  // a header may claim any size
  constexpr int kMostScans = 500;
  const auto file = std::as_bytes(std::span(bytes, size));
  const DecodeLimits limits{.max_pixels = kMostPixels};
  const PlainDecoding plain = decode_plainly(file, kMostPixels);
  auto ours = decode_jpeg(file, {}, {.limits = limits});
  if (!ours.ok()) {
    if (plain.error.empty() && !plain.ends_early && plain.scans <= kMostScans) std::abort();
    return 0;
  }
  // libjpeg reads ahead: it also says that the data end where only the end marker is missing, and the pixels are there.
  if (!plain.error.empty()) std::abort();
  const Image& image = plain.image;
  if (ours.value().height != image.height || ours.value().width != image.width || ours.value().pixels != image.pixels)
    std::abort();
  // The window depends on the file, so that small changes of it try others.
  uint32_t draw = 2166136261;
  for (const std::byte byte : file) draw = (draw ^ static_cast<uint32_t>(byte)) * 16777619;
  const auto below = [&](int count) {
    draw = draw * 1664525 + 1013904223;
    return static_cast<int>((draw >> 8) % static_cast<uint32_t>(count));
  };
  CropWindow window;
  window.height = 1 + below(image.height);
  window.width = 1 + below(image.width);
  window.y = below(image.height - window.height + 1);
  window.x = below(image.width - window.width + 1);
  auto part = decode_jpeg(file, window, {.limits = limits});
  if (!part.ok() || part.value().pixels != copy_of(ImageView(image).part(window)).pixels) std::abort();
  return 0;
}
