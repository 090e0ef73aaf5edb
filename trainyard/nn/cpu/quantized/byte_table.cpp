// Functions of single bytes, by a table.
#include "trainyard/nn/cpu/quantized/translate.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void byte_table(const ByteTable& a) {
  const Quantizer quantize(a.output_inverse_scale, a.output_zero_point);
  for (int64_t first = 0; first < 256; first += kLanes) {
    const Floats value = to_floats(lanes_from(0) + static_cast<int32_t>(first - a.zero_point)) * fill(a.scale);
    store_bytes(a.table + first, quantize(activate_by(a.activation, value)));
  }
}

void map_bytes(const MapBytes& a) {
  constexpr int64_t kChunk = 16384;
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < a.count; first += kChunk) {
    translate(a.input + first, a.table, smaller(kChunk, a.count - first), a.output + first);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
