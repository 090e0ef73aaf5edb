// Means over pixels, and their backward.
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Returns the sum of `count` pixels. It is made of sums over at most kPiecePixels / 4 pixels, so that a channel of a
// million pixels loses no digits.
template <typename T>
Floats sum_of(const T* pixels, int64_t count) {
  Floats total = {};
  for (int64_t first = 0; first < count; first += kPiecePixels) {
    const T* pixel = pixels + first * kLanes;
    const T* const end = pixels + smaller(count, first + kPiecePixels) * kLanes;
    Floats sums[4] = {};
    for (; pixel + 4 * kLanes <= end; pixel += 4 * kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] += load(pixel + i * kLanes);
    }
    for (; pixel < end; pixel += kLanes) sums[0] += load(pixel);
    total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  return total;
}

template <typename T>
void forward(const GlobalAverageForward& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const T* const input = static_cast<const T*>(a.input);
#pragma omp parallel for
  for (int64_t plane = 0; plane < a.shape.batch * blocks; ++plane) {
    const int64_t n = plane / blocks, b = plane % blocks;
    const Floats mean = sum_of(input + plane * pixels * kLanes, pixels) / fill(static_cast<float>(pixels));
    store_lanes(a.output + n * a.shape.channels + b * kLanes, mean, channel_lanes(a.shape, b));
  }
}

template <typename T>
void backward(const GlobalAverageBackward& a) {
  const int64_t blocks = a.shape.blocks();
  const Floats pixels = fill(static_cast<float>(a.shape.pixels()));
  const Output<T> target(a.input_gradient, a.shape, false);
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t n = piece.plane / blocks, b = piece.plane % blocks;
    const Floats share = load_lanes(a.gradient + n * a.shape.channels + b * kLanes, channel_lanes(a.shape, b)) / pixels;
    each_pixel(piece, [&](int64_t at) { target.put_or_add(at, share, a.accumulate); });
  });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(global_average_forward, GlobalAverageForward, forward)
TRAINYARD_KERNEL_OF_TYPES(global_average_backward, GlobalAverageBackward, backward)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
