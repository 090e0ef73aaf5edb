// Floats to bytes.
#include "trainyard/nn/cpu/layout/transpose.h"
#include "trainyard/nn/cpu/quantized/byte_lanes.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Loads `count` numbers that are `stride` apart, and zeros behind them.
[[gnu::always_inline]] inline Floats load_apart(const float* from, int64_t stride, int64_t count) {
  if (stride == 1) return count == kLanes ? load(from) : load_lanes(from, first_lanes(count));
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = from[i * stride];
  return load(lanes);
}

// Quantizes `count` neighbouring pixels of at most four channels, to four bytes a pixel.
void pack_image_row(const QuantizePlain& a, const float* plain, int64_t count, uint8_t* to,
                    CheckedQuantizer& quantize) {
  for (int64_t p = 0; p < count; p += kLanes) {
    const int64_t some = smaller(kLanes, count - p);
    Ints pixels = {};
    for (int64_t c = 0; c < 4; ++c) {
      const bool real = c < a.shape.channels;
      const Ints bytes =
          real ? quantize(load_apart(plain + c * a.strides[1] + p * a.strides[3], a.strides[3], some)) & 0xFF
               : fill_ints(a.zero_point);
      pixels |= bytes << static_cast<int>(8 * c);
    }
    __builtin_memcpy(to + p * 4, &pixels, static_cast<decltype(sizeof(0))>(some * 4));
  }
}

void quantize_image(const QuantizePlain& a) {
  const int64_t height = a.shape.height, width = a.shape.width;
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t n = 0; n < a.shape.batch; ++n) {
    for (int64_t y = 0; y < height; ++y) {
      CheckedQuantizer quantize(a.inverse_scale, a.zero_point);
      pack_image_row(a, a.plain + n * a.strides[0] + y * a.strides[2], width, a.map + (n * height + y) * width * 4,
                     quantize);
      quantize.report(a.non_finite, n);
    }
  }
}

// Quantizes `count` neighbouring pixels of a row with `channels` channels. Strides count floats.
void pack_row(const float* plain, int64_t channel_stride, int64_t pixel_stride, int64_t channels, int64_t count,
              uint8_t* to, CheckedQuantizer& quantize) {
  if (pixel_stride == 1 && count > 1) {
    for (int64_t p = 0; p < count; p += kLanes) {
      const int64_t some = smaller(kLanes, count - p);
      Floats pixels[kLanes];
      load_planes(plain + p, channel_stride, channels, some, pixels);
      for (int64_t i = 0; i < some; ++i) store_bytes(to + (p + i) * kLanes, quantize(pixels[i]));
    }
  } else {
    for (int64_t p = 0; p < count; ++p) {
      store_bytes(to + p * kLanes, quantize(load_apart(plain + p * pixel_stride, channel_stride, channels)));
    }
  }
}

void quantize_blocks(const QuantizePlain& a) {
  const int64_t blocks = a.shape.blocks(), width = a.shape.width;
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t n = piece.plane / blocks, b = piece.plane % blocks;
    const int64_t channels = smaller(kLanes, a.shape.channels - b * kLanes);
    const float* const plain = a.plain + n * a.strides[0] + b * kLanes * a.strides[1];
    // Rows that follow each other without a gap are treated as one.
    const int64_t row = a.strides[2] == width * a.strides[3] ? a.shape.pixels() : width;
    CheckedQuantizer quantize(a.inverse_scale, a.zero_point);
    for (int64_t p = piece.first; p < piece.last;) {
      const int64_t x = p % row, count = smaller(piece.last - p, row - x);
      pack_row(plain + p / row * a.strides[2] + x * a.strides[3], a.strides[1], a.strides[3], channels, count,
               a.map + piece.begin + (p - piece.first) * kLanes, quantize);
      p += count;
    }
    quantize.report(a.non_finite, n);
  });
}

template <typename T>
void quantize_of(const QuantizeMap& a) {
  const T* const input = static_cast<const T*>(a.input);
  in_pieces(a.shape, [&](const Piece& piece) {
    CheckedQuantizer quantize(a.inverse_scale, a.zero_point);
    each_pixel(
        piece, [&](int64_t at) __attribute__((always_inline)) { store_bytes(a.map + at, quantize(load(input + at))); });
    quantize.report(a.non_finite, piece.plane / a.shape.blocks());
  });
}

constexpr int64_t kChunk = 4096;  // features that a thread quantizes at a time

}  // namespace

void quantize_plain(const QuantizePlain& a) {
  a.shape.block == 4 ? quantize_image(a) : quantize_blocks(a);
}

TRAINYARD_KERNEL_OF_TYPES(quantize_map, QuantizeMap, quantize_of)

void quantize_vectors(const QuantizeVectors& a) {
  const int64_t chunks = (a.features + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < a.batch * chunks; ++i) {
    const int64_t n = i / chunks, first = i % chunks * kChunk, count = smaller(kChunk, a.features - first);
    const float* const from = a.input + n * a.features + first;
    uint8_t* const to = a.output + n * a.features + first;
    CheckedQuantizer quantize(a.inverse_scale, a.zero_point);
    int64_t f = 0;
    for (; f + kLanes <= count; f += kLanes) store_bytes(to + f, quantize(load(from + f)));
    if (f < count) {
      uint8_t last[kLanes];
      store_bytes(last, quantize(load_lanes(from + f, first_lanes(count - f))));
      __builtin_memcpy(to + f, last, static_cast<decltype(sizeof(0))>(count - f));
    }
    quantize.report(a.non_finite, n);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
