// Sums of byte maps, and products with a factor for each channel.
#include "trainyard/nn/cpu/quantized/byte_lanes.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <int count>
void sum_of(const SumBytes& a) {
  Floats scales[count];
  Ints zero_points[count];
  for (int i = 0; i < count; ++i) {
    scales[i] = fill(a.scales[i]);
    zero_points[i] = fill_ints(a.zero_points[i]);
  }
  with_output(a.to, [&](const auto& output) {
    in_pieces(a.shape, [&](const Piece& piece) {
      const Bits lanes = channel_lanes(a.shape, piece.plane % a.shape.blocks());
      each_pixel(
          piece, [&](int64_t at) __attribute__((always_inline)) {
            Floats value = load_centered(a.inputs[0] + at, zero_points[0]) * scales[0];
#pragma GCC unroll 4
            for (int i = 1; i < count; ++i) {
              value = multiply_add(load_centered(a.inputs[i] + at, zero_points[i]), scales[i], value);
            }
            output.put(at, value, lanes);
          });
    });
  });
}

}  // namespace

void sum_bytes(const SumBytes& a) {
  static_assert(kMostByteInputs == 4);
  if (a.input_count == 1) return sum_of<1>(a);
  if (a.input_count == 2) return sum_of<2>(a);
  a.input_count == 3 ? sum_of<3>(a) : sum_of<4>(a);
}

void scale_channels_bytes(const ScaleChannelsBytes& a) {
  const Ints zero_point = fill_ints(a.zero_point);
  with_output(a.to, [&](const auto& output) {
    in_pieces(a.shape, [&](const Piece& piece) {
      const int64_t n = piece.plane / a.shape.blocks(), b = piece.plane % a.shape.blocks();
      const Bits lanes = channel_lanes(a.shape, b);
      const Floats factor = load_lanes(a.factor + n * a.shape.channels + b * kLanes, lanes) * fill(a.scale);
      each_pixel(
          piece, [&](int64_t at) __attribute__((always_inline)) {
            output.put(at, load_centered(a.input + at, zero_point) * factor, lanes);
          });
    });
  });
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
