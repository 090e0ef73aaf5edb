// Max pooling. Backward gathers: each pixel asks the windows that cover it whether it was their maximum, so every pixel
// is written once, by one thread.
#include "trainyard/nn/cpu/kernels/window.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

struct Largest {
  Floats value;
  Ints place;

  [[gnu::always_inline]] void see(Floats candidate, int64_t at) {
    // NaN wins, and stays: it is found here, and no comparison with it is true.
    const auto better = (candidate > value) | (candidate != candidate);
    value = better ? candidate : value;
    place = better ? Ints{} + static_cast<int32_t>(at) : place;
  }
};

template <typename T, typename Known>
void forward(const MaxPoolForward& a) {
  const MapShape in_shape = a.input_shape, out_shape = a.output_shape;
  const T* const input = static_cast<const T*>(a.input);
  T* const output = static_cast<T*>(a.output);
#pragma omp parallel for collapse(2)
  for (int64_t plane = 0; plane < in_shape.batch * in_shape.blocks(); ++plane) {
    for (int64_t y = 0; y < out_shape.height; ++y) {
      const Window w = Known::of(a.window);
      const T* const image = input + plane * in_shape.pixels() * kLanes;
      const int64_t begin = (plane * out_shape.pixels() + y * out_shape.width) * kLanes;
      const Bits lanes = channel_lanes(in_shape, plane % in_shape.blocks());
      const int64_t top = y * w.stride_height - w.top;
      const Range rows = inside(top, w.kernel_height, in_shape.height);
      for (int64_t x = 0; x < out_shape.width; ++x) {
        const int64_t left = x * w.stride_width - w.left;
        const Range columns = inside(left, w.kernel_width, in_shape.width);
        const T* const corner = image + (top * in_shape.width + left) * kLanes;
        Largest largest = {fill(-__builtin_inff()),
                           Ints{} + static_cast<int32_t>(rows.first * w.kernel_width + columns.first)};
        const auto see = [&](int64_t i, int64_t j) __attribute__((always_inline)) {
          largest.see(load(corner + (i * in_shape.width + j) * kLanes), i * w.kernel_width + j);
        };
        if (rows.first == 0 && rows.last == w.kernel_height && columns.first == 0 && columns.last == w.kernel_width) {
          for (int64_t i = 0; i < w.kernel_height; ++i) {
            for (int64_t j = 0; j < w.kernel_width; ++j) see(i, j);
          }
        } else {
          for (int64_t i = rows.first; i < rows.last; ++i) {
            for (int64_t j = columns.first; j < columns.last; ++j) see(i, j);
          }
        }
        store(output + begin + x * kLanes, keep(largest.value, lanes));
        if (a.place != nullptr) store_bytes(a.place + begin + x * kLanes, largest.place);
      }
    }
  }
}

template <typename T, typename Known>
void backward(const MaxPoolBackward& a) {
  const MapShape in_shape = a.input_shape, out_shape = a.output_shape;
  const T* const gradient = static_cast<const T*>(a.gradient);
  T* const target = static_cast<T*>(a.input_gradient);
#pragma omp parallel for collapse(2)
  for (int64_t plane = 0; plane < in_shape.batch * in_shape.blocks(); ++plane) {
    for (int64_t y = 0; y < in_shape.height; ++y) {
      const Window w = Known::of(a.window);
      const int64_t begin = plane * out_shape.pixels() * kLanes;
      T* const row = target + (plane * in_shape.pixels() + y * in_shape.width) * kLanes;
      const Range rows = covering(y + w.top, w.kernel_height, w.stride_height, out_shape.height);
      for (int64_t x = 0; x < in_shape.width; ++x) {
        const Range columns = covering(x + w.left, w.kernel_width, w.stride_width, out_shape.width);
        Floats sum = {};
        for (int64_t i = rows.first; i < rows.last; ++i) {
          for (int64_t j = columns.first; j < columns.last; ++j) {
            const int64_t at = begin + (i * out_shape.width + j) * kLanes;
            const int64_t place = (y + w.top - i * w.stride_height) * w.kernel_width + x + w.left - j * w.stride_width;
            const Floats passed = load(gradient + at);
            sum += load_bytes(a.place + at) == static_cast<int32_t>(place) ? passed : Floats{};
          }
        }
        T* const pixel = row + x * kLanes;
        store(pixel, a.accumulate ? load(pixel) + sum : sum);
      }
    }
  }
}

}  // namespace

void max_pool_forward(const MaxPoolForward& a) {
  with_window(a.window, [&](auto known) {
    a.dtype == DataType::kFloat ? forward<float, decltype(known)>(a) : forward<Bfloat16, decltype(known)>(a);
  });
}

void max_pool_backward(const MaxPoolBackward& a) {
  with_window(a.window, [&](auto known) {
    a.dtype == DataType::kFloat ? backward<float, decltype(known)>(a) : backward<Bfloat16, decltype(known)>(a);
  });
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
