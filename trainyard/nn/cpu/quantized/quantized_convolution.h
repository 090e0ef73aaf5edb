// Convolutions of bytes, compiled once for each instruction set, and functions that choose by isa():
// nn/cpu/simd/kernels.h says why and how.
//
// Products are exact: AVX-512 VNNI and AVX-VNNI multiply bytes, four to a sum. The others multiply pairs of 16 bits, by
// Winograd's algorithm where that is faster, or clipped bytes (clipped_products.h), since their instruction for pairs
// of bytes saturates.
#pragma once

#include <string>

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/quantized_arguments.h"

namespace trainyard::nn::cpu {

#define TRAINYARD_DECLARE_QUANTIZED                                           \
  void quantized_convolution(const QuantizedConvolution& a);                  \
  int64_t quantized_convolution_scratch_bytes(const QuantizedConvolution& a); \
  void quantized_convolution_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack);

namespace avx2 {
TRAINYARD_DECLARE_QUANTIZED
}
namespace avx512 {
TRAINYARD_DECLARE_QUANTIZED
}
#undef TRAINYARD_DECLARE_QUANTIZED

inline void quantized_convolution(const QuantizedConvolution& a) {
  isa() == Isa::kAvx2 ? avx2::quantized_convolution(a) : avx512::quantized_convolution(a);
}
// Returns the bytes of scratch memory for a call with `a`, whose pointers are not read.
inline int64_t quantized_convolution_scratch_bytes(const QuantizedConvolution& a) {
  return isa() == Isa::kAvx2 ? avx2::quantized_convolution_scratch_bytes(a)
                             : avx512::quantized_convolution_scratch_bytes(a);
}
// Returns whether `a` should be computed with `winograd`. A quarter of the products is worth the transforms where tiles
// are rather full and channels not too few; for a few tiles, reading four times the weights takes longer.
inline bool is_faster_by_winograd(const QuantizedConvolution& a) {
  constexpr int64_t kLeastTiles = 8, kLeastChannels = 16;
  const int64_t direct = a.window_pixels() * a.output_shape.batch * a.output_shape.pixels(),
                products = QuantizedConvolution::kWinogradPoints * a.tiles();
  return !a.vnni && a.fits_winograd() && a.tiles() >= kLeastTiles && 2 * direct >= 3 * products &&
         a.input_shape.channels >= kLeastChannels && a.output_shape.channels >= kLeastChannels;
}
// Returns whether `a` should be computed with `clipped`. With few channels on a side, clipping bytes and beginning sums
// takes longer than is saved. With values on both sides of zero, of which more are outliers than behind a ReLU, what is
// saved is less.
inline bool is_faster_clipped(const QuantizedConvolution& a) {
  constexpr int64_t kLeastIn = 48, kLeastInOfTwoSides = 96, kLeastOut = 24;
  const int64_t least_in = a.input_zero < 32 ? kLeastIn : kLeastInOfTwoSides;
  return !a.vnni && a.fits_clipped() && a.input_shape.channels >= least_in && a.output_shape.channels >= kLeastOut;
}
// Returns what `a` is computed by, as reports name it.
inline std::string kernel_name(const QuantizedConvolution& a) {
  return a.vnni ? "int8 vnni" : a.winograd ? "int8 winograd" : a.clipped ? "int8 clipped" : "int8 pairs";
}
// Packs weights for calls with the shapes, the window, `vnni`, `winograd`, `clipped` and the input's zero point of `a`.
inline void quantized_convolution_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack) {
  isa() == Isa::kAvx2 ? avx2::quantized_convolution_pack(a, pack) : avx512::quantized_convolution_pack(a, pack);
}

}  // namespace trainyard::nn::cpu
