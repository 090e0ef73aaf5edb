// Average pooling. Backward gathers: each pixel adds up its shares of the windows that cover it.
#include "trainyard/nn/cpu/pool/window.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T, typename Known>
void forward(const AveragePool& a) {
  for_each_window_row<T, Known>(
      a, [&](const WindowRow<T>& row) __attribute__((always_inline)) {
        const Window w = row.window;
        T* const out = static_cast<T*>(a.output) + row.begin;
        const int64_t width = a.input_shape.width, out_width = a.output_shape.width;
        const int64_t row_count = rows_counted(a, w, row.y);
        for (int64_t x = 0; x < out_width; ++x) {
          const int64_t left = x * w.stride_width - w.left;
          const Range columns = inside(left, w.kernel_width, width);
          Floats sum = {};
          for (int64_t i = row.rows.first; i < row.rows.last; ++i) {
            const T* const from = row.image + ((row.top + i) * width + left) * kLanes;
            for (int64_t j = columns.first; j < columns.last; ++j) sum += load(from + j * kLanes);
          }
          const Floats mean = sum / fill(static_cast<float>(row_count * columns_counted(a, w, x)));
          store(out + x * kLanes, keep(mean, row.lanes));  // pad lanes of a window outside of the image are 0 / 0
        }
      });
}

template <typename T, typename Known>
void backward(const AveragePool& a) {
  const MapShape in_shape = a.input_shape, out_shape = a.output_shape;
  const T* const gradient = static_cast<const T*>(a.input);
  const Output<T> target(a.output, in_shape, false);
  for_each(in_shape.batch * in_shape.blocks() * in_shape.height, [&](int64_t row) {
    const int64_t plane = row / in_shape.height, y = row % in_shape.height;
    const Window w = Known::of(a.window);
    const T* const from = gradient + plane * out_shape.pixels() * kLanes;
    const Range rows = covering(y + w.top, w.kernel_height, w.stride_height, out_shape.height);
    // Windows in the middle are whole; along a side, only the first or last that covers a pixel may be cut.
    const auto whole_rows = [&](int64_t i) { return rows_counted(a, w, i) == w.kernel_height; };
    const auto whole_columns = [&](int64_t j) { return columns_counted(a, w, j) == w.kernel_width; };
    const bool rows_are_whole = whole_rows(rows.first) && whole_rows(rows.last - 1);
    const Floats whole_share = fill(1.0F / static_cast<float>(w.kernel_height * w.kernel_width));
    for (int64_t x = 0; x < in_shape.width; ++x) {
      const Range columns = covering(x + w.left, w.kernel_width, w.stride_width, out_shape.width);
      Floats sum = {};
      if (rows_are_whole && whole_columns(columns.first) && whole_columns(columns.last - 1)) {
        for (int64_t i = rows.first; i < rows.last; ++i) {
          for (int64_t j = columns.first; j < columns.last; ++j) sum += load(from + (i * out_shape.width + j) * kLanes);
        }
        sum *= whole_share;
      } else {
        for (int64_t i = rows.first; i < rows.last; ++i) {
          const int64_t row_count = rows_counted(a, w, i);
          for (int64_t j = columns.first; j < columns.last; ++j) {
            const float share = 1.0F / static_cast<float>(row_count * columns_counted(a, w, j));
            sum = multiply_add(load(from + (i * out_shape.width + j) * kLanes), fill(share), sum);
          }
        }
      }
      target.put_or_add((row * in_shape.width + x) * kLanes, sum, a.accumulate);
    }
  });
}

}  // namespace

TRAINYARD_KERNEL_OF_WINDOWS(average_pool_forward, AveragePool, forward)
TRAINYARD_KERNEL_OF_WINDOWS(average_pool_backward, AveragePool, backward)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
