// Layer norm that writes bytes.
#include "trainyard/nn/cpu/norm/layer_norm.h"
#include "trainyard/nn/cpu/quantized/byte_lanes.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T>
void normalize_to_bytes(const LayerNormBytes& a) {
  auto* const output = static_cast<uint8_t*>(a.output);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < a.shape.batch * pixel_tiles(a.shape); ++i) {
    const Tile tile = pixel_tile(a.shape, i);
    CheckedQuantizer quantize(a.inverse_scale, a.zero_point);
    normalize<T>(
        a, tile, [&](int64_t at, Floats value, Bits /*lanes*/) __attribute__((always_inline)) {
          store_bytes(output + at, quantize(value));
        });
    quantize.report(a.non_finite, tile.sample);
  }
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(layer_norm_bytes, LayerNormBytes, normalize_to_bytes)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
