// A decoded image, a view of a part of one, limits of decoding, and what turns pixels into numbers for a model: the
// scale of their values (Normalization), how sizes are rounded (ResizeConvention), changes of colour (ColorDraw).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Allocate memory that is not initialised, aligned to 64 bytes, and return it to the pool. Throws kNoSpace
// (core/memory/block_cache.h). Any thread.
void* take_pooled_memory(size_t bytes);
void return_pooled_memory(void* memory, size_t bytes) noexcept;

template <typename T>
struct PooledAllocator {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name

  PooledAllocator() = default;
  template <typename U>
  PooledAllocator(const PooledAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  T* allocate(size_t count) { return static_cast<T*>(take_pooled_memory(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) noexcept { return_pooled_memory(memory, count * sizeof(T)); }
  template <typename U>
  void construct(U*) noexcept {}
  template <typename U, typename... Values>
  void construct(U* place, Values&&... values) {
    ::new (static_cast<void*>(place)) U(static_cast<Values&&>(values)...);
  }
  bool operator==(const PooledAllocator&) const = default;
};

// A vector whose memory comes from a pool, for short-lived data of each sample such as the pixels of an image. malloc
// would return blocks of a third of a megabyte to the system at once, and the page faults of the next allocation cost a
// tenth of the input's time. resize() does not initialise elements.
template <typename T>
using PooledVector = std::vector<T, PooledAllocator<T>>;

struct ImageSize {
  int height = 0, width = 0;  // pixels
  bool operator==(const ImageSize&) const = default;
};

// Rows [y, y + height) and columns [x, x + width).
struct CropWindow {
  int y = 0, x = 0, height = 0, width = 0;  // pixels
  bool operator==(const CropWindow&) const = default;
};

struct Image {
  int height = 0, width = 0;
  PooledVector<uint8_t> pixels{};  // [height, width, 3] RGB
};

// Pixels of an image or of a part of one, whose owner must outlive it.
struct ImageView {
  int height = 0, width = 0;
  const uint8_t* pixels = nullptr;  // [height, width, 3] RGB
  ptrdiff_t stride = 0;             // bytes from row to row

  ImageView() = default;
  ImageView(const Image& image)  // NOLINT(google-explicit-constructor): an image is the view of all of it
      : height(image.height), width(image.width), pixels(image.pixels.data()), stride(ptrdiff_t{3} * image.width) {}
  // Returns the part `crop`, which must be inside.
  [[nodiscard]] ImageView part(const CropWindow& crop) const;
};

// Limits of decoding. Image files are not trusted: their size is checked before any memory is allocated for pixels.
struct DecodeLimits {
  int64_t max_pixels = 178'956'970;  // height x width of the whole image; 512 MiB as RGB
  // Called with the bytes of the pixels before they are allocated. It refuses by throwing.
  std::function<void(int64_t bytes)> before_allocation{};
};

// How an image file is decoded.
struct DecodeOptions {
  DecodeLimits limits{};
  // JPEG: rotates the image as its EXIF data say. Sizes and windows are then those of the rotated image.
  bool exif_orientation = false;
  // JPEG: decodes at 1/2, 1/4 or 1/8 of the size, by a smaller inverse DCT, as long as the window does not become
  // smaller than this; {0, 0} means at full size. With 1 / n, the result holds the window's rows and columns from
  // floor(begin / n) to ceil(end / n), of the image of size ceil(height / n) x ceil(width / n).
  ImageSize at_least{};
};

// Returns a copy of the pixels.
[[nodiscard]] Image copy_of(const ImageView& view);

// Returns kCorruptData "image too large" when the image has more pixels than the limit.
core::Result<void> check_size(ImageSize size, const DecodeLimits& limits);
// Returns kCorruptData when the window is empty or not inside an image of this size.
core::Result<void> check_inside(const CropWindow& crop, ImageSize size);

using Rgb = std::array<float, 3>;

inline constexpr Rgb kImagenetChannelMeans = {123.68F, 116.78F,
                                              103.94F};  // of tf_cnn_benchmarks and TensorFlow's official models
// 255 times (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225): torchvision, Paddle, Tensorpack.
inline constexpr Rgb kImagenetMean = {123.675F, 116.28F, 103.53F};
inline constexpr Rgb kImagenetStandardDeviation = {58.395F, 57.12F, 57.375F};

// Converts pixels in [0, 255] to the scale that a model expects: pixel * scale + shift, by channel.
struct Normalization {
  Rgb scale = {1 / 127.5F, 1 / 127.5F, 1 / 127.5F};
  Rgb shift = {-1, -1, -1};

  // Returns pixel / 127.5 - 1, which is in [-1, 1].
  [[nodiscard]] static Normalization symmetric() { return {}; }
  // Returns pixel - mean.
  [[nodiscard]] static Normalization minus_mean(const Rgb& mean);
  // Returns (pixel - mean) / standard_deviation. Throws kInvalidArgument when a deviation is not above 0.
  [[nodiscard]] static Normalization standardized(const Rgb& mean, const Rgb& standard_deviation);

  bool operator==(const Normalization&) const = default;

  // Normalizes `image`, float [3, pixels], in place.
  void apply(float* image, int64_t pixels) const;
};

// How an evaluation scales an image to a given shorter side and crops the centre. Programs round differently, which
// moves pixels:
//
//   plain        sides rounded down, in whole numbers; half of the margin, rounded down
//   tensorflow   both sides computed in single precision and rounded down, so that the shorter one may come out a pixel
//                short; half of the margin, rounded down. official/r1/resnet of tensorflow/models
//   torchvision  sides as `plain`; half of the margin, a half rounded to the even number; values are cut off at 0 and
//                255. Resize and CenterCrop of images of whole values
//   dali         sides rounded to the nearest, a half away from zero; pixels stay as far apart as the exact sides say,
//                about the image's centre (subpixel_scale); pixels outside of the image repeat its edge; half of the
//                margin, a half rounded up. fn.resize and fn.crop_mirror_normalize of NVIDIA DALI
//   opencv       the longer side rounded to the nearest; half of the margin, rounded down; pixels outside of the image
//                repeat its edge; bicubic is Keys' kernel with a = -0.75, and values are cut off at 0 and 255.
//                cv2.resize as Tensorpack calls it
enum class ResizeConvention { kPlain, kTensorflow, kTorchvision, kDali, kOpencv };

// The amounts by which distort_color() changes colours, for ColorDistortion{} of the same fields.
struct ColorDraw {
  float brightness = 0;  // is added to values in [0, 1]
  float saturation = 1, contrast = 1;
  float hue = 0;  // fraction of the circle in HSV; in YIQ, pi times it is the angle
  bool operator==(const ColorDraw&) const = default;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
