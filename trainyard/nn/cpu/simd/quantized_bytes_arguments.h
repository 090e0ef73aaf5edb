// The arguments of the kernels for maps and vectors of bytes, other than the dense convolution
// (quantized_arguments.h). Follows the rules of arguments.h.
//
// A byte q stands for scale * (q - zero_point), with one scale and one zero point a map. Byte maps have `shape.block`
// lanes, as others do; their pad lanes may hold any value. A value v is quantized to
//   q = clamp(round(v * inverse_scale) + zero_point, 0, 255), rounded to nearest, ties to even; NaN becomes
//   `zero_point`.
// All kernels compute the formulas in their comments in that order in float, with fma(a, b, c) = a * b + c rounded
// once, so that every instruction set gives the same bits where no transcendental function is involved.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/cpu/simd/quantized_arguments.h"

namespace trainyard::nn::cpu {

// Quantizes a plain float [N, C, H, W], of any strides (in elements), to a byte map. The block is the instruction
// set's, or 4 with at most 4 channels: the image [N, H, W, 4] that a network's first convolution reads; its pad lanes
// become `zero_point`. Sets non_finite[n] to 1 where sample n has a NaN or an infinity, and writes no other flag.
struct QuantizePlain {
  MapShape shape;
  const float* plain = nullptr;
  int64_t strides[4] = {};
  float inverse_scale = 1;
  uint8_t zero_point = 0;
  uint8_t* map = nullptr;
  uint8_t* non_finite = nullptr;  // [batch] or null
};
// Quantizes a map of floats or bfloat16 to a byte map of the same shape.
struct QuantizeMap {
  MapShape shape;
  DataType dtype = DataType::kFloat;  // of the input
  const void* input = nullptr;
  float inverse_scale = 1;
  uint8_t zero_point = 0;
  uint8_t* map = nullptr;
  uint8_t* non_finite = nullptr;  // as above
};
// Quantizes contiguous vectors, float [batch, features] to bytes of the same shape.
struct QuantizeVectors {
  int64_t batch = 1, features = 1;
  const float* input = nullptr;
  float inverse_scale = 1;
  uint8_t zero_point = 0;
  uint8_t* output = nullptr;
  uint8_t* non_finite = nullptr;  // as above
};

// Quantizes the output of LayerNormForward: `output` is a byte map.
struct LayerNormBytes : LayerNormForward {
  float inverse_scale = 1;
  uint8_t zero_point = 0;
  uint8_t* non_finite = nullptr;  // as above
};

// output = scale * (q - zero_point): a byte map to a map of floats or bfloat16, whose pad lanes become zero.
struct DequantizeMap {
  MapShape shape;
  const uint8_t* map = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  DataType dtype = DataType::kFloat;  // of the output
  void* output = nullptr;
};
// The same to a plain contiguous float [N, C, H, W].
struct DequantizePlain {
  MapShape shape;
  const uint8_t* map = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  float* plain = nullptr;
};
// The same for contiguous vectors [batch, features].
struct DequantizeVectors {
  int64_t batch = 1, features = 1;
  const uint8_t* input = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  float* output = nullptr;
};
// Copies a byte map to plain contiguous bytes [N, C, H, W]: flattening.
struct FlattenBytes {
  MapShape shape;
  const uint8_t* map = nullptr;
  uint8_t* plain = nullptr;
};

// Convolves byte maps in groups of any width, depthwise among them:
//   acc = sum of q_x * q_w, with `input_zero` for pixels outside of the image, + offsets[o];
//   v = fma(float(acc), factors[o], bias[o]), which `to` adds to, activates and writes
// An output of bytes that is activated by bounds and has no residual multiplies factors and biases by inverse_scale
// first, as quantized_arguments.h says.
// Weights and bytes are multiplied in quads: four neighbouring pixels of a channel (depthwise), or four channels of a
// pixel. Without VNNI a quad has two parts, its even and its odd elements, as 16 bits each.
struct QuantizedGroupedShape {
  MapShape input_shape, output_shape;
  int64_t groups = 1;
  Window window;
  int64_t dilation_height = 1, dilation_width = 1;
  bool vnni = false;  // has_vnni(), also when the weights were packed
  int threads = 1;    // of the team

  [[gnu::always_inline]] int64_t group_in() const { return input_shape.channels / groups; }
  [[gnu::always_inline]] int64_t group_out() const { return output_shape.channels / groups; }
  [[gnu::always_inline]] int64_t window_pixels() const { return window.kernel_height * window.kernel_width; }
  [[gnu::always_inline]] bool is_depthwise() const { return group_in() == 1 && group_out() == 1; }
  // Returns whether each group is a part of one block on both sides.
  [[gnu::always_inline]] bool fills_lanes() const {
    return group_in() == group_out() && group_in() < input_shape.block && input_shape.block % group_in() == 0;
  }
  // Returns the first input block that output block `b` reads, and how many it reads.
  [[gnu::always_inline]] GroupedConvolution::Blocks inputs_of(int64_t b) const {
    return GroupedConvolution::reached(b, output_shape, group_out(), group_in());
  }
  // Returns whether weights are split and bytes multiplied as they are (nn/cpu/quantized/split_depthwise.h).
  [[gnu::always_inline]] bool splits() const {
    return !vnni && input_shape.block == 8 && is_depthwise() && window.kernel_height == 3 && window.kernel_width == 3 &&
           dilation_height == 1 && dilation_width == 1 && window.stride_width <= 2;
  }
  // Returns the most input blocks that an output block reads.
  [[gnu::always_inline]] int64_t input_blocks() const {
    int64_t most = 1;
    for (int64_t b = 0; b < output_shape.blocks(); ++b) {
      most = inputs_of(b).count > most ? inputs_of(b).count : most;
    }
    return most;
  }
  [[gnu::always_inline]] int64_t parts() const { return vnni ? 1 : 2; }
  // Returns the bytes of a quad of each lane.
  [[gnu::always_inline]] int64_t quad_bytes() const { return parts() * input_shape.block * 4; }

  // Depthwise, a row is computed in pieces of `piece_outputs` neighbours. They read the same `piece_quads` quads of
  // each row of the input, each with weights of its own.
  [[gnu::always_inline]] int64_t piece_quads() const { return (window.kernel_width + 3) / 4; }
  [[gnu::always_inline]] int64_t piece_outputs() const {
    return dilation_width > 1 ? 1 : (piece_quads() * 4 - window.kernel_width) / window.stride_width + 1;
  }
  // Returns the quads of channels that an output channel reads from a pixel of one input block.
  [[gnu::always_inline]] int64_t channel_quads() const {
    if (!fills_lanes()) return input_shape.block / 4;
    return group_in() < 4 ? 1 : group_in() / 4;
  }
  // Returns the quads of each lane of an output block's weights.
  [[gnu::always_inline]] int64_t weight_quads() const {
    return is_depthwise() ? window.kernel_height * piece_quads() * piece_outputs()
                          : input_blocks() * window_pixels() * channel_quads();
  }
  // Returns the bytes of an output block's weights: of splits(), two parts of five pairs, each twice for 8 lanes.
  [[gnu::always_inline]] int64_t weight_bytes() const {
    return splits() ? int64_t{2 * 5 * 2 * 8 * 2} : weight_quads() * quad_bytes();
  }
  [[gnu::always_inline]] int64_t packed_bytes() const { return output_shape.blocks() * weight_bytes(); }

  // Outputs are computed up to kTile neighbours at a time, also beyond the end of the row. Each thread keeps the quads
  // of the rows that one row of windows covers.
  static constexpr int64_t kTile = 8;
  [[gnu::always_inline]] int64_t kept_rows() const { return (window.kernel_height - 1) * dilation_height + 1; }
  // Returns the pieces of a row, or without pieces its outputs, rounded up to tiles.
  [[gnu::always_inline]] int64_t row_pieces() const {
    const int64_t outputs = is_depthwise() ? piece_outputs() : 1;
    return ((output_shape.width + outputs - 1) / outputs + kTile - 1) / kTile * kTile;
  }
  // Returns the pixels of a row of the input with its padding.
  [[gnu::always_inline]] int64_t row_pixels() const {
    const int64_t step = (is_depthwise() ? piece_outputs() : 1) * window.stride_width;
    const int64_t covered = row_pieces() * step + (window.kernel_width + 3) * dilation_width;
    const int64_t given = window.left + input_shape.width;
    return covered > given ? covered : given;
  }
  // Returns the bytes of a row's quads. Where all lanes read the same quad, it is kept once; splits() keep pixels.
  [[gnu::always_inline]] int64_t row_bytes() const {
    if (splits()) return row_pixels() * input_shape.block;
    if (is_depthwise()) return row_pieces() * piece_quads() * quad_bytes();
    return row_pixels() * (fills_lanes() ? channel_quads() * quad_bytes() : parts() * input_shape.block);
  }
  static constexpr int64_t kSplitRows = 8;  // kept where the kernel splits()
  [[gnu::always_inline]] int64_t thread_scratch() const {
    if (splits()) return (kSplitRows * row_bytes() + 63) / 64 * 64;
    const int64_t rows = kept_rows() * input_blocks();
    return rows * row_bytes() + (2 * rows * 8 + 63) / 64 * 64;
  }
  [[gnu::always_inline]] int64_t scratch_bytes() const { return thread_scratch_bytes(thread_scratch(), threads); }
};
struct QuantizedGroupedConvolution : QuantizedGroupedShape {
  const uint8_t* input = nullptr;
  uint8_t input_zero = 0;
  const int8_t* weights = nullptr;                  // packed, aligned to 64
  const int32_t* offsets = nullptr;                 // [padded out]
  const float *factors = nullptr, *bias = nullptr;  // [padded out]
  QuantizedOutput to;
  void* scratch = nullptr;  // scratch_bytes(), aligned to 64
};
// Packs int8 weights [out, in / groups, kernel height, kernel width], -127 to 127.
struct QuantizedGroupedPack : QuantizedGroupedShape {
  const int8_t* plain = nullptr;
  uint8_t input_zero = 0;
  int8_t* packed = nullptr;    // packed_bytes(), aligned to 64
  int32_t* offsets = nullptr;  // [padded out] out: -input_zero * sum of an output's weights
};

constexpr int kMostByteInputs = 4;

// v = (q_0 - zero_points[0]) * scales[0]; v = fma(q_i - zero_points[i], scales[i], v) for further inputs; `to`
// activates and writes v (no residual). The output may be one of the inputs.
struct SumBytes {
  MapShape shape;
  const uint8_t* inputs[kMostByteInputs] = {};
  float scales[kMostByteInputs] = {};
  uint8_t zero_points[kMostByteInputs] = {};
  int input_count = 2;
  QuantizedOutput to;
};

// Writes table[q] = the quantized activation(scale * (q - zero_point)) for all bytes. With kNone, it changes scales.
struct ByteTable {
  float scale = 1;
  uint8_t zero_point = 0;
  UnitActivation activation = UnitActivation::kNone;
  float output_inverse_scale = 1;
  uint8_t output_zero_point = 0;
  uint8_t* table = nullptr;  // [256] out
};
// output[i] = table[input[i]]: stand-alone activations, and changes of scale.
struct MapBytes {
  int64_t count = 0;  // bytes, pad lanes included
  const uint8_t* input = nullptr;
  const uint8_t* table = nullptr;  // [256]
  uint8_t* output = nullptr;       // may be `input`
};

// Computes each window's maximum over the pixels inside the image, 0 where it has none. The scale stays.
struct MaxPoolBytes {
  MapShape input_shape, output_shape;
  Window window;
  const uint8_t* input = nullptr;
  uint8_t* output = nullptr;
};
// v = float(sum of (q - zero_point) over the pixels inside the image) * (scale / divisor), with AveragePool's divisor.
// `to` activates and writes v (no residual).
struct AveragePoolBytes {
  MapShape input_shape, output_shape;
  Window window;
  int64_t bottom = 0, right = 0;
  bool count_padding = false;
  const uint8_t* input = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  QuantizedOutput to;
};
// v = float(sum of (q - zero_point) over all pixels) * (scale / pixels), written to contiguous vectors [N, C] of floats
// or bytes by `to` (no residual).
struct GlobalAverageBytes {
  MapShape shape;
  const uint8_t* input = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  QuantizedOutput to;
};
// v = float(q - zero_point) * (scale * factor[n, c]), with a float [N, C] contiguous: squeeze-and-excitation. `to` adds
// the residual, activates and writes v.
struct ScaleChannelsBytes {
  MapShape shape;
  const uint8_t* input = nullptr;
  float scale = 1;
  uint8_t zero_point = 0;
  const float* factor = nullptr;
  QuantizedOutput to;
};

// Copies channels [from, from + count) of `source` to channels [to, to + count) of `target`, through `table` where the
// scales differ. Other channels of `target` stay as they are, or become `fill` with `fill_rest` (nn::ChannelPad).
struct CopyChannelsBytes {
  MapShape source_shape, target_shape;
  int64_t from = 0, to = 0, count = 0;
  const uint8_t* source = nullptr;
  const uint8_t* table = nullptr;  // [256] or null
  uint8_t* target = nullptr;
  bool fill_rest = false;
  uint8_t fill = 0;
};
// Output channel c is input channel channels[c].
struct PermuteChannelsBytes {
  MapShape shape;
  const int32_t* channels = nullptr;  // [shape.channels]
  const uint8_t* input = nullptr;
  uint8_t* output = nullptr;
};

}  // namespace trainyard::nn::cpu

// X(function, argument): the kernels of bytes.
#define TRAINYARD_CPU_BYTE_KERNELS(X)                           \
  X(quantize_plain, QuantizePlain)                              \
  X(quantize_map, QuantizeMap)                                  \
  X(quantize_vectors, QuantizeVectors)                          \
  X(layer_norm_bytes, LayerNormBytes)                           \
  X(dequantize_map, DequantizeMap)                              \
  X(dequantize_plain, DequantizePlain)                          \
  X(dequantize_vectors, DequantizeVectors)                      \
  X(flatten_bytes, FlattenBytes)                                \
  X(quantized_grouped_convolution, QuantizedGroupedConvolution) \
  X(quantized_grouped_pack, QuantizedGroupedPack)               \
  X(sum_bytes, SumBytes)                                        \
  X(byte_table, ByteTable)                                      \
  X(map_bytes, MapBytes)                                        \
  X(max_pool_bytes, MaxPoolBytes)                               \
  X(average_pool_bytes, AveragePoolBytes)                       \
  X(global_average_bytes, GlobalAverageBytes)                   \
  X(scale_channels_bytes, ScaleChannelsBytes)                   \
  X(copy_channels_bytes, CopyChannelsBytes)                     \
  X(permute_channels_bytes, PermuteChannelsBytes)
