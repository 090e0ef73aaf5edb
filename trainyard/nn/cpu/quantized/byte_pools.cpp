// Pooling of byte maps.
#include "trainyard/nn/cpu/pool/window.h"
#include "trainyard/nn/cpu/quantized/byte_lanes.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename Known>
void max_rows(const MaxPoolBytes& a) {
  for_each_window_row<uint8_t, Known>(
      a, [&](const WindowRow<uint8_t>& row) __attribute__((always_inline)) {
        const Window w = row.window;
        uint8_t* const out = a.output + row.begin;
        const int64_t width = a.input_shape.width, out_width = a.output_shape.width;
        for (int64_t x = 0; x < out_width; ++x) {
          const int64_t left = x * w.stride_width - w.left;
          const Range columns = inside(left, w.kernel_width, width);
          __m128i largest = _mm_setzero_si128();
          for (int64_t i = row.rows.first; i < row.rows.last; ++i) {
            const uint8_t* const from = row.image + ((row.top + i) * width + left) * kLanes;
            for (int64_t j = columns.first; j < columns.last; ++j) {
              largest = _mm_max_epu8(largest, load_block(from + j * kLanes));
            }
          }
          store_block(out + x * kLanes, largest);
        }
      });
}

template <typename Known, typename Writer>
void average_rows(const AveragePoolBytes& a, const Writer& output) {
  for_each_window_row<uint8_t, Known>(
      a, [&](const WindowRow<uint8_t>& row) __attribute__((always_inline)) {
        const Window w = row.window;
        const int64_t width = a.input_shape.width, out_width = a.output_shape.width;
        const int64_t row_count = rows_counted(a, w, row.y);
        for (int64_t x = 0; x < out_width; ++x) {
          const int64_t left = x * w.stride_width - w.left;
          const Range columns = inside(left, w.kernel_width, width);
          const int64_t pixels = larger(0, row.rows.last - row.rows.first) * larger(0, columns.last - columns.first);
          Ints sum = fill_ints(static_cast<int32_t>(-pixels * a.zero_point));
          for (int64_t i = row.rows.first; i < row.rows.last; ++i) {
            const uint8_t* const from = row.image + ((row.top + i) * width + left) * kLanes;
            for (int64_t j = columns.first; j < columns.last; ++j) sum += load_bytes(from + j * kLanes);
          }
          const float factor = a.scale / static_cast<float>(row_count * columns_counted(a, w, x));
          output.put(row.begin + x * kLanes, to_floats(sum) * fill(factor), row.lanes);
        }
      });
}

// Returns the sum of `count` pixels of a block.
Ints sum_of(const uint8_t* pixels, int64_t count) {
  Ints sums[4] = {};
  int64_t p = 0;
  for (; p + 4 <= count; p += 4) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) sums[i] += load_bytes(pixels + (p + i) * kLanes);
  }
  for (; p < count; ++p) sums[0] += load_bytes(pixels + p * kLanes);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Calls use.operator()<Known>() with the KnownWindow that fits.
template <typename Use>
void with_known_window(const Window& window, const Use& use) {
  with_window(DataType::kFloat, window, [&]<typename T, typename Known>() { use.template operator()<Known>(); });
}

}  // namespace

void max_pool_bytes(const MaxPoolBytes& a) {
  with_known_window(a.window, [&]<typename Known>() { max_rows<Known>(a); });
}

void average_pool_bytes(const AveragePoolBytes& a) {
  with_output(a.to, [&](const auto& output) {
    with_known_window(a.window, [&]<typename Known>() { average_rows<Known>(a, output); });
  });
}

void global_average_bytes(const GlobalAverageBytes& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const float factor = a.scale / static_cast<float>(pixels);
  const int64_t size = size_of(a.to.dtype);
#pragma omp parallel for schedule(static)
  for (int64_t plane = 0; plane < a.shape.batch * blocks; ++plane) {
    const int64_t n = plane / blocks, b = plane % blocks;
    const Ints sum = sum_of(a.input + plane * pixels * kLanes, pixels) - static_cast<int32_t>(pixels * a.zero_point);
    // Vectors have no pad lanes, so that the last block may be a part of one.
    alignas(64) uint8_t block[kLanes * 4];
    QuantizedOutput to = a.to;
    to.output = block;
    AnyOutput(to).put(0, to_floats(sum) * fill(factor), channel_lanes(a.shape, b));
    const int64_t first = n * a.shape.channels + b * kLanes, count = smaller(kLanes, a.shape.channels - b * kLanes);
    __builtin_memcpy(static_cast<uint8_t*>(a.to.output) + first * size, block,
                     static_cast<decltype(sizeof(0))>(count * size));
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
