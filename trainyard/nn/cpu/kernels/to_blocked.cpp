// Between plain [N, C, H, W] floats and maps in blocked layout.
#include "trainyard/nn/cpu/kernels/compiled_for.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T>
void pack(const ToBlocked& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels(), width = a.shape.width;
  T* const map = static_cast<T*>(a.map);
#pragma omp parallel for collapse(2)
  for (int64_t n = 0; n < a.shape.batch; ++n) {
    for (int64_t b = 0; b < blocks; ++b) {
      T* const out = map + (n * blocks + b) * pixels * kLanes;
      const int64_t channels = smaller(a.shape.channels - b * kLanes, kLanes);
      const float* const in = a.plain + n * a.strides[0] + b * kLanes * a.strides[1];
      for (int64_t y = 0; y < a.shape.height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          T* const lanes = out + (y * width + x) * kLanes;
          const float* const pixel = in + y * a.strides[2] + x * a.strides[3];
          for (int64_t c = 0; c < kLanes; ++c) lanes[c] = narrow<T>(c < channels ? pixel[c * a.strides[1]] : 0.0F);
        }
      }
    }
  }
}

template <typename T>
void unpack(const ToPlain& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const T* const map = static_cast<const T*>(a.map);
#pragma omp parallel for collapse(2)
  for (int64_t n = 0; n < a.shape.batch; ++n) {
    for (int64_t b = 0; b < blocks; ++b) {
      const T* const in = map + (n * blocks + b) * pixels * kLanes;
      const int64_t channels = smaller(a.shape.channels - b * kLanes, kLanes);
      float* const out = a.plain + (n * a.shape.channels + b * kLanes) * pixels;
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t p = 0; p < pixels; ++p) out[c * pixels + p] = widen(in[p * kLanes + c]);
      }
    }
  }
}

}  // namespace

void to_blocked(const ToBlocked& a) {
  a.dtype == DataType::kFloat ? pack<float>(a) : pack<Bfloat16>(a);
}

void to_plain(const ToPlain& a) {
  a.dtype == DataType::kFloat ? unpack<float>(a) : unpack<Bfloat16>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
