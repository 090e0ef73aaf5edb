// What every image decoder must do with untrusted bytes. For fuzz targets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Overwrites what a decoder may find in memory that it does not set: the stack that it is about to use, and the memory
// that an image of `bytes` bytes will get (PooledVector, image/image.h).
[[gnu::noinline]] inline void dirty_memory(uint8_t value, size_t bytes) {
  constexpr size_t kStackBytes = size_t{1} << 16;
  std::array<volatile uint8_t, kStackBytes> stack;
  for (volatile uint8_t& byte : stack) byte = value;
  const PooledVector<uint8_t> kept(bytes, value);
  static_cast<void>(kept);
}

// Shows the pixels to valgrind and MemorySanitizer, which follow uninitialized memory up to a system call.
inline void show(const Image& image) {
  static const int kNowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (::write(kNowhere, image.pixels.data(), image.pixels.size()) < 0) std::abort();
}

// Ends the program unless: a file that decodes has the size that its header says, decodes to the same pixels whatever
// the memory held before, and the middle of it decodes alone, to the same pixels. A corrupt file is as good an answer.
template <typename ReadSize, typename Decode>
void check_decoder(std::span<const std::byte> bytes, const ReadSize& read_size, const Decode& decode) {
  // Few pixels, so that a header's wish does not cost the time of a hundred inputs.
  const DecodeLimits limits{.max_pixels = 1 << 13};
  auto size = read_size(bytes);
  dirty_memory(0x55, 0);
  auto whole = decode(bytes, std::optional<CropWindow>(), limits);
  if (!whole.ok()) return;
  const Image& image = whole.value();
  show(image);
  dirty_memory(0xaa, image.pixels.size());
  auto again = decode(bytes, std::optional<CropWindow>(), limits);
  if (!again.ok() || again.value().pixels != image.pixels) std::abort();
  if (!size.ok() || size.value() != ImageSize{image.height, image.width}) std::abort();
  const CropWindow middle{image.height / 3, image.width / 3, (image.height + 2) / 3, (image.width + 2) / 3};
  auto part = decode(bytes, std::optional<CropWindow>(middle), limits);
  if (!part.ok() || part.value().pixels != copy_of(ImageView(image).part(middle)).pixels) std::abort();
}

// The same of a format's two functions (codecs/optional_codecs.h), upright and turned.
template <typename ReadSize, typename Decode>
void check_format(const uint8_t* bytes, size_t size, const ReadSize& read_size, const Decode& decode) {
  for (const bool turned : {false, true}) {
    check_decoder(
        std::as_bytes(std::span(bytes, size)), [&](auto header) { return read_size(header, turned); },
        [&](auto whole, const auto& crop, const DecodeLimits& limits) {
          return decode(whole, crop, {.limits = limits, .exif_orientation = turned});
        });
  }
}

}  // namespace trainyard::data
