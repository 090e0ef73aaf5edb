// Computes the pixels that a pooling window covers, and the windows that cover a pixel. Follows the rules of
// compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/output.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

struct Range {
  int64_t first, last;  // [first, last), empty if last <= first
  [[gnu::always_inline]] bool covers(int64_t count) const { return first == 0 && last == count; }
};

// Returns the offsets in a window that lie inside an image of `extent` pixels, when the window starts at pixel `start`.
[[gnu::always_inline]] inline Range inside(int64_t start, int64_t kernel, int64_t extent) {
  return {larger(0, -start), smaller(kernel, extent - start)};
}

// Returns the windows that cover `at`, a pixel counted from the padded image's edge.
[[gnu::always_inline]] inline Range covering(int64_t at, int64_t kernel, int64_t stride, int64_t windows) {
  return {at < kernel ? 0 : (at - kernel) / stride + 1, smaller(windows, at / stride + 1)};
}

// A square kernel and stride that are known when compiling, so that the loops over usual windows are unrolled; 0: not
// known.
template <int64_t kernel, int64_t stride>
struct KnownWindow {
  static constexpr int64_t kKernel = kernel, kStride = stride;
  [[gnu::always_inline]] static Window of(Window window) {
    if constexpr (kernel > 0) {
      window.kernel_height = window.kernel_width = kernel;
      window.stride_height = window.stride_width = stride;
    }
    return window;
  }
};

// One row of windows: where it lies in the image and in the output.
template <typename T>
struct WindowRow {
  Window window;
  const T* image;    // one channel block of one sample
  int64_t y, begin;  // the row of the output, and its first element there
  Bits lanes;        // those of real channels
  int64_t top;       // the first row of the image that the windows reach, from the padding above it on
  Range rows;        // the rows of the windows that lie inside the image
};

// Calls work(WindowRow<T>) for each row of the output, in parallel.
template <typename T, typename Known, typename Arguments, typename Work>
inline void for_each_window_row(const Arguments& a, const Work& work) {
  const MapShape in_shape = a.input_shape, out_shape = a.output_shape;
  for_each(in_shape.batch * in_shape.blocks() * out_shape.height, [&](int64_t row) {
    const int64_t plane = row / out_shape.height, y = row % out_shape.height;
    const Window w = Known::of(a.window);
    const int64_t top = y * w.stride_height - w.top;
    work(WindowRow<T>{.window = w,
                      .image = static_cast<const T*>(a.input) + plane * in_shape.pixels() * kLanes,
                      .y = y,
                      .begin = row * out_shape.width * kLanes,
                      .lanes = channel_lanes(in_shape, plane % in_shape.blocks()),
                      .top = top,
                      .rows = inside(top, w.kernel_height, in_shape.height)});
  });
}

// Returns how many pixels of a window count along one side, for AveragePool or AveragePoolBytes. `start` is the
// window's first pixel.
template <typename Average>
[[gnu::always_inline]] inline int64_t counted(const Average& a, int64_t start, int64_t kernel, int64_t extent,
                                              int64_t padding) {
  if (a.count_padding) return smaller(kernel, extent + padding - start);
  const Range real = inside(start, kernel, extent);
  return larger(0, real.last - real.first);
}
template <typename Average>
[[gnu::always_inline]] inline int64_t rows_counted(const Average& a, const Window& w, int64_t y) {
  return counted(a, y * w.stride_height - w.top, w.kernel_height, a.input_shape.height, a.bottom);
}
template <typename Average>
[[gnu::always_inline]] inline int64_t columns_counted(const Average& a, const Window& w, int64_t x) {
  return counted(a, x * w.stride_width - w.left, w.kernel_width, a.input_shape.width, a.right);
}

// Calls use.operator()<T, Known>() with the dtype's element and the KnownWindow that fits.
template <typename Use>
inline void with_window(DataType dtype, const Window& window, const Use& use) {
  const auto with = [&]<typename Known>(Known) {
    dtype == DataType::kFloat ? use.template operator()<float, Known>() : use.template operator()<Bfloat16, Known>();
  };
  const auto is = [&](int64_t kernel, int64_t stride) {
    return window.kernel_height == kernel && window.kernel_width == kernel && window.stride_height == stride &&
           window.stride_width == stride;
  };
  if (is(3, 2)) return with(KnownWindow<3, 2>());
  if (is(2, 2)) return with(KnownWindow<2, 2>());
  if (is(3, 1)) return with(KnownWindow<3, 1>());
  return with(KnownWindow<0, 0>());
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA

// Defines the kernel `name`, which calls `function<T, Known>` with the element type and the window of its arguments.
#define TRAINYARD_KERNEL_OF_WINDOWS(name, Arguments, function)                                    \
  void name(const Arguments& a) {                                                                 \
    with_window(a.dtype, a.window, [&]<typename T, typename Known>() { function<T, Known>(a); }); \
  }
