// Max pooling. Backward gathers: each pixel asks the windows that cover it whether it was their maximum, so every pixel
// is written once, by one thread.
#include "trainyard/nn/cpu/pool/argmax.h"
#include "trainyard/nn/cpu/pool/window.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

struct Largest {
  Floats value;
  WindowIndexes argmax;
};

// Returns the maximum of pixels `rows` x `columns` of the window whose first pixel is at `corner`, and its index in the
// window. A row of the image has `row` elements.
template <typename T>
[[gnu::always_inline]] inline Largest largest_of(const T* corner, int64_t row, int64_t kernel_width, Range rows,
                                                 Range columns) {
  const auto pixel = [&](int64_t i, int64_t j) __attribute__((always_inline)) {
    return load(corner + i * row + j * kLanes);
  };
  Largest largest = {fill(-__builtin_inff()), WindowIndexes(rows.first * kernel_width + columns.first)};
  Bits nan = 0;
  for (int64_t i = rows.first; i < rows.last; ++i) {
    for (int64_t j = columns.first; j < columns.last; ++j) {
      largest.value = maximum(pixel(i, j), largest.value);
      if ((j - columns.first) % 2 == 1) nan = static_cast<Bits>(nan | unordered(pixel(i, j - 1), pixel(i, j)));
    }
    if ((columns.last - columns.first) % 2 == 1)
      nan = static_cast<Bits>(nan | unordered(pixel(i, columns.last - 1), pixel(i, columns.last - 1)));
  }
  // From the last to the first, so that the first of equal pixels stays.
  for (int64_t i = rows.last - 1; i >= rows.first; --i) {
    for (int64_t j = columns.last - 1; j >= columns.first; --j) {
      largest.argmax.set_where_equal(pixel(i, j), largest.value, i * kernel_width + j);
    }
  }
  if (__builtin_expect(nan != 0, 0)) {  // NaN is the maximum, and the last one counts, as in PyTorch
    for (int64_t i = rows.first; i < rows.last; ++i) {
      for (int64_t j = columns.first; j < columns.last; ++j) {
        const Floats x = pixel(i, j);
        largest.value = x != x ? x : largest.value;
        largest.argmax.set_where_nan(x, i * kernel_width + j);
      }
    }
  }
  return largest;
}

template <typename T, typename Known>
void forward(const MaxPoolForward& a) {
  for_each_window_row<T, Known>(
      a, [&](const WindowRow<T>& row) __attribute__((always_inline)) {
        const Window w = row.window;
        T* const out = static_cast<T*>(a.output) + row.begin;
        uint8_t* const argmax = a.argmax == nullptr ? nullptr : a.argmax + row.begin;
        const int64_t width = a.input_shape.width, out_width = a.output_shape.width, stride = width * kLanes;
        for (int64_t x = 0; x < out_width; ++x) {
          const int64_t left = x * w.stride_width - w.left;
          const Range columns = inside(left, w.kernel_width, width);
          const T* const corner = row.image + row.top * stride + left * kLanes;
          const Largest largest =
              row.rows.covers(w.kernel_height) && columns.covers(w.kernel_width)
                  ? largest_of(corner, stride, w.kernel_width, {0, w.kernel_height}, {0, w.kernel_width})
                  : largest_of(corner, stride, w.kernel_width, row.rows, columns);
          store(out + x * kLanes, keep(largest.value, row.lanes));  // a window outside of the image gave -infinity
          if (argmax != nullptr) largest.argmax.store_to(argmax + x * kLanes);
        }
      });
}

// Gathers for one row of the image what its pixels get from the windows that cover them.
template <typename T, typename Known>
class Gather {
 public:
  Gather(const MaxPoolBackward& a, int64_t plane, int64_t y)
      : a_(a),
        w_(Known::of(a.window)),
        gradient_(static_cast<const T*>(a.gradient) + plane * a.output_shape.pixels() * kLanes),
        argmax_(a.argmax + plane * a.output_shape.pixels() * kLanes),
        target_(a.input_gradient, a.input_shape, false),
        begin_((plane * a.input_shape.height + y) * a.input_shape.width * kLanes),
        windows_(a.output_shape.width),
        padded_y_(y + w_.top),
        rows_(covering(padded_y_, w_.kernel_height, w_.stride_height, a.output_shape.height)) {}

  void run() const {
    const int64_t width = a_.input_shape.width;
    int64_t x = 0;
    if constexpr (Known::kStride > 0) {
      // Groups from `first` to `last` have all the windows that can cover a group.
      const int64_t first = larger(kReach, (w_.left + Known::kStride - 1) / Known::kStride);
      const int64_t last = smaller(windows_, (width + w_.left) / Known::kStride);
      while (x < smaller(width, first * Known::kStride - w_.left)) pixel(x++);
      for (int64_t q = first; q < last; ++q, x += Known::kStride) group(q, x);
    }
    while (x < width) pixel(x++);
  }

 private:
  static constexpr int64_t kReach = Known::kStride > 0 ? (Known::kKernel - 1) / Known::kStride : 0;

  [[gnu::always_inline]] void add(Floats& sum, int64_t i, int64_t j, int64_t column) const {
    const int64_t at = (i * windows_ + j) * kLanes, row = padded_y_ - i * w_.stride_height;
    sum = add_where(sum, load(gradient_ + at), argmax_ + at, row * w_.kernel_width + column);
  }
  [[gnu::always_inline]] void put(int64_t x, Floats sum) const {
    target_.put_or_add(begin_ + x * kLanes, sum, a_.accumulate);
  }

  void pixel(int64_t x) const {
    const int64_t padded_x = x + w_.left;
    const Range columns = covering(padded_x, w_.kernel_width, w_.stride_width, windows_);
    Floats sum = {};
    for (int64_t i = rows_.first; i < rows_.last; ++i) {
      for (int64_t j = columns.first; j < columns.last; ++j) add(sum, i, j, padded_x - j * w_.stride_width);
    }
    put(x, sum);
  }
  // Gathers for the pixels from window q's first to the next window's: the windows q, q - 1, ... cover all of them.
  [[gnu::always_inline]] void group(int64_t q, int64_t x) const {
    Floats sums[Known::kStride] = {};
    for (int64_t i = rows_.first; i < rows_.last; ++i) {
#pragma GCC unroll 4
      for (int64_t back = 0; back <= kReach; ++back) {
#pragma GCC unroll 4
        for (int64_t k = 0; k < Known::kStride; ++k) {
          const int64_t column = back * Known::kStride + k;
          if (column < Known::kKernel) add(sums[k], i, q - back, column);
        }
      }
    }
    for (int64_t k = 0; k < Known::kStride; ++k) put(x + k, sums[k]);
  }

  const MaxPoolBackward& a_;
  const Window w_;
  const T* const gradient_;
  const uint8_t* const argmax_;
  const Output<T> target_;
  const int64_t begin_, windows_, padded_y_;
  const Range rows_;
};

template <typename T, typename Known>
void backward(const MaxPoolBackward& a) {
  const int64_t height = a.input_shape.height;
  for_each(a.input_shape.batch * a.input_shape.blocks() * height,
           [&](int64_t i) { Gather<T, Known>(a, i / height, i % height).run(); });
}

}  // namespace

TRAINYARD_KERNEL_OF_WINDOWS(max_pool_forward, MaxPoolForward, forward)
TRAINYARD_KERNEL_OF_WINDOWS(max_pool_backward, MaxPoolBackward, backward)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
