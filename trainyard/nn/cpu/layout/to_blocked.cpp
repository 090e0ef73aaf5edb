// Copies between plain [N, C, H, W] floats and maps in blocked layout.
#include "trainyard/nn/cpu/layout/transpose.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Packs `count` neighbouring pixels of a row with `channels` channels. Strides count floats.
template <typename T>
void pack_row(const float* plain, int64_t channel_stride, int64_t pixel_stride, int64_t channels, int64_t count,
              T* map) {
  if (channel_stride == 1) {  // channels_last, or vectors
    const Bits lanes = first_lanes(channels);
    for (int64_t p = 0; p < count; ++p) store(map + p * kLanes, load_lanes(plain + p * pixel_stride, lanes));
  } else if (pixel_stride == 1) {
    for (int64_t p = 0; p < count; p += kLanes) {
      const int64_t some = smaller(kLanes, count - p);
      Floats pixels[kLanes];
      load_planes(plain + p, channel_stride, channels, some, pixels);
      for (int64_t i = 0; i < some; ++i) store(map + (p + i) * kLanes, pixels[i]);
    }
  } else {
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t c = 0; c < kLanes; ++c) {
        map[p * kLanes + c] = narrow<T>(c < channels ? plain[p * pixel_stride + c * channel_stride] : 0.0F);
      }
    }
  }
}

template <typename T>
void pack(const ToBlocked& a) {
  const int64_t blocks = a.shape.blocks(), width = a.shape.width;
  T* const map = static_cast<T*>(a.map);
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t b = piece.plane % blocks, channels = smaller(kLanes, a.shape.channels - b * kLanes);
    const float* const plain = a.plain + piece.plane / blocks * a.strides[0] + b * kLanes * a.strides[1];
    // Rows that follow each other without a gap are treated as one.
    const int64_t row = a.strides[2] == width * a.strides[3] ? a.shape.pixels() : width;
    for (int64_t p = piece.first; p < piece.last;) {
      const int64_t x = p % row, count = smaller(piece.last - p, row - x);
      pack_row(plain + p / row * a.strides[2] + x * a.strides[3], a.strides[1], a.strides[3], channels, count,
               map + piece.begin + (p - piece.first) * kLanes);
      p += count;
    }
  });
}

template <typename T>
void unpack(const ToPlain& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const T* const map = static_cast<const T*>(a.map);
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t b = piece.plane % blocks, channels = smaller(kLanes, a.shape.channels - b * kLanes);
    float* const plain = a.plain + (piece.plane / blocks * a.shape.channels + b * kLanes) * pixels;
    if (pixels == 1) return store_lanes(plain, load(map + piece.begin), first_lanes(channels));
    for (int64_t p = piece.first; p < piece.last; p += kLanes) {
      const int64_t count = smaller(kLanes, piece.last - p);
      const T* const from = map + piece.begin + (p - piece.first) * kLanes;
      Floats lanes[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] = load(from + smaller(i, count - 1) * kLanes);
      store_planes(plain + p, pixels, channels, count, lanes);
    }
  });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(to_blocked, ToBlocked, pack)
TRAINYARD_KERNEL_OF_TYPES(to_plain, ToPlain, unpack)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
