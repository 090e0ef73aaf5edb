// The arguments of kernels that compute in 8-bit integers. Follows the rules of arguments.h.
//
// A byte map (DataType::kUint8) holds numbers x = scale * (q - zero_point), one scale and zero point a map. Its pad
// lanes may hold anything. What a kernel makes of float sums is, in this order,
//   v = fma(float(sum), factor, bias); v = v + residual; v = activation(v)
//   q = clamp(round_half_to_even(v * inverse_scale) + zero_point, 0, 255), the zero point for a NaN
// An output of bytes that is activated by bounds (none, ReLU, ReLU6) and adds nothing or bytes has another order:
//   v = fma(float(sum), factor * inverse_scale, bias * inverse_scale); then residual_scale * inverse_scale is the
//   residual's scale, six is 6 * inverse_scale, and q = clamp(round_half_to_even(v) + zero_point, 0, 255)
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu {

// Where a quantized layer writes, and what it does before.
struct QuantizedOutput {
  DataType dtype = DataType::kUint8;  // of the output
  void* output = nullptr;
  float inverse_scale = 1;  // of a kUint8 output
  uint8_t zero_point = 0;   // of a kUint8 output
  UnitActivation activation = UnitActivation::kNone;
  // A map of the output's shape, or null. A kUint8 one adds fma(float(q - residual_zero), residual_scale, v). May be
  // `output` if the two have the same dtype.
  const void* residual = nullptr;
  DataType residual_dtype = DataType::kUint8;
  float residual_scale = 1;
  uint8_t residual_zero = 0;
};

// A convolution of one group. The input is a byte map, with the block of the instruction set or, for an image of at
// most 4 channels, with block 4: [batch][height][width][4]. The output has the block of the instruction set. In pixels
// outside of the image, the input is `input_zero`. A sum has at most kMostTerms terms, so that int32 holds it.
//
// With `vectors`, the maps have one pixel and are plain, [batch][channels] without pad lanes, and the window is 1x1: a
// linear layer.
//
// With `winograd`, the sums are made by Winograd's F(4x4, 3x3) in integers (nn/cpu/quantized/winograd_transforms.h),
// and are the same.
//
// With `clipped`, they are made of bytes whose outliers are apart (nn/cpu/quantized/clipped_products.h), and are the
// same, too.
struct QuantizedConvolution {
  static constexpr int64_t kMostTerms = 66000;  // 255 * 127 * 66000 < 2^31
  // Winograd's algorithm makes four times a sum, modulo 2^32: 255 * 127 * 9 * 1841 < 2^29.
  static constexpr int64_t kMostWinogradChannels = 1841;
  static constexpr int64_t kWinogradTile = 4, kWinogradPoints = 36;

  MapShape input_shape, output_shape;
  Window window;
  int64_t dilation_height = 1, dilation_width = 1;
  bool vectors = false;
  bool vnni = false;      // has_vnni(), also when the weights were packed
  bool winograd = false;  // only where fits_winograd(), also when the weights were packed
  bool clipped = false;   // only where fits_clipped(), also when the weights were packed
  const uint8_t* input = nullptr;
  uint8_t input_zero = 0;
  const int8_t* weights = nullptr;                  // packed, aligned to 64
  const int32_t* offsets = nullptr;                 // [padded out]: -input_zero * (sum of an output's weights)
  const float *factors = nullptr, *bias = nullptr;  // [padded out]
  QuantizedOutput to;
  int threads = 1;          // of the team
  void* scratch = nullptr;  // quantized_convolution_scratch_bytes(), aligned to 64

  [[gnu::always_inline]] int64_t window_pixels() const { return window.kernel_height * window.kernel_width; }
  [[gnu::always_inline]] bool fits_winograd() const {
    return window.kernel_height == 3 && window.kernel_width == 3 && window.stride_height == 1 &&
           window.stride_width == 1 && dilation_height == 1 && dilation_width == 1 && !vectors &&
           input_shape.block == output_shape.block && input_shape.channels <= kMostWinogradChannels;
  }
  // Winograd's algorithm takes input channels in pairs of blocks, and output in squares of kWinogradTile pixels.
  [[gnu::always_inline]] int64_t block_pairs() const { return (input_shape.blocks() + 1) / 2; }
  [[gnu::always_inline]] int64_t tile_rows() const { return (output_shape.height + kWinogradTile - 1) / kWinogradTile; }
  [[gnu::always_inline]] int64_t tile_columns() const {
    return (output_shape.width + kWinogradTile - 1) / kWinogradTile;
  }
  [[gnu::always_inline]] int64_t tiles() const { return output_shape.batch * tile_rows() * tile_columns(); }
  [[gnu::always_inline]] bool fits_clipped() const {
    return window_pixels() == 1 && input_shape.block == output_shape.block;
  }
  // Clipped activations need a number for each output.
  [[gnu::always_inline]] int64_t correction_bytes() const {
    return (output_shape.padded_channels() * 4 + 63) / 64 * 64;
  }
  // Returns the bytes of the packed weights: without VNNI the instructions take 16 bits, and so do those of Winograd's
  // algorithm. With clipped activations, weights have 8 bits, and four of them 16 more.
  [[gnu::always_inline]] int64_t packed_bytes() const {
    if (clipped) return correction_bytes() + output_shape.padded_channels() * input_shape.padded_channels() * 3 / 2;
    if (winograd) return kWinogradPoints * output_shape.padded_channels() * block_pairs() * 2 * input_shape.block * 2;
    return output_shape.padded_channels() * input_shape.padded_channels() * window_pixels() * (vnni ? 1 : 2);
  }
};

// Packs int8 weights [out, in, kernel height, kernel width], -127 to 127, for QuantizedConvolution of these shapes.
struct QuantizedConvolutionPack {
  const int8_t* plain = nullptr;
  int8_t* packed = nullptr;    // packed_bytes(), aligned to 64
  int32_t* offsets = nullptr;  // [padded out] out, or null
};

}  // namespace trainyard::nn::cpu
