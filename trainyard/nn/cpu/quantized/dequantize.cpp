// Bytes to floats, and to plain bytes.
#include "trainyard/nn/cpu/layout/transpose.h"
#include "trainyard/nn/cpu/quantized/grouped_quads.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T>
void dequantize_to(const DequantizeMap& a) {
  const Output<T> output(a.output, a.shape, false);
  const Floats scale = fill(a.scale);
  const Ints zero_point = fill_ints(a.zero_point);
  in_pieces(a.shape, [&](const Piece& piece) {
    const Bits lanes = channel_lanes(a.shape, piece.plane % a.shape.blocks());
    each_pixel(
        piece, [&](int64_t at) __attribute__((always_inline)) {
          output.put(at, keep(load_centered(a.map + at, zero_point) * scale, lanes));
        });
  });
}

// Copies the bytes of all pixels of a block to `channels` planes.
void flatten_block(const uint8_t* map, int64_t pixels, int64_t channels, uint8_t* plain) {
  int64_t p = 0;
  for (; p + 4 <= pixels; p += 4) {
    uint32_t quads[kLanes];
    store_ints(quads, load_pixel_quads(map + p * kLanes));
    for (int64_t c = 0; c < channels; ++c) __builtin_memcpy(plain + c * pixels + p, quads + c, 4);
  }
  for (; p < pixels; ++p) {
    for (int64_t c = 0; c < channels; ++c) plain[c * pixels + p] = map[p * kLanes + c];
  }
}

constexpr int64_t kChunk = 4096;  // features that a thread converts at a time

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(dequantize_map, DequantizeMap, dequantize_to)

void dequantize_plain(const DequantizePlain& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const Floats scale = fill(a.scale);
  const Ints zero_point = fill_ints(a.zero_point);
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t b = piece.plane % blocks, channels = smaller(kLanes, a.shape.channels - b * kLanes);
    float* const plain = a.plain + (piece.plane / blocks * a.shape.channels + b * kLanes) * pixels;
    const auto value = [&](int64_t at) { return load_centered(a.map + at, zero_point) * scale; };
    if (pixels == 1) return store_lanes(plain, value(piece.begin), first_lanes(channels));
    for (int64_t p = piece.first; p < piece.last; p += kLanes) {
      const int64_t count = smaller(kLanes, piece.last - p);
      const int64_t from = piece.begin + (p - piece.first) * kLanes;
      Floats lanes[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] = value(from + smaller(i, count - 1) * kLanes);
      store_planes(plain + p, pixels, channels, count, lanes);
    }
  });
}

void dequantize_vectors(const DequantizeVectors& a) {
  const int64_t elements = a.batch * a.features;
  const auto zero_point = static_cast<int32_t>(a.zero_point);
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < elements; first += kChunk) {
    const int64_t last = smaller(elements, first + kChunk);
    for (int64_t i = first; i < last; ++i) a.output[i] = static_cast<float>(a.input[i] - zero_point) * a.scale;
  }
}

void flatten_bytes(const FlattenBytes& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
#pragma omp parallel for schedule(static)
  for (int64_t plane = 0; plane < a.shape.batch * blocks; ++plane) {
    const int64_t n = plane / blocks, b = plane % blocks;
    flatten_block(a.map + plane * pixels * kLanes, pixels, smaller(kLanes, a.shape.channels - b * kLanes),
                  a.plain + (n * a.shape.channels + b * kLanes) * pixels);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
