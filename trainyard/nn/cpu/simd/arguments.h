// The arguments of the CPU plan's kernels: plain pointers and sizes. Code that is compiled for one instruction set
// (kernels.h) includes this file, so it includes nothing that has code of its own.
//
// Maps have the blocked layout of nn/cpu/simd/feature_map.h, with the block of the instruction set and elements of
// `dtype`. Sums are kept in fp32 or wider, never in 16 bits. Vectors marked [padded] are float, with one element for
// each padded channel and zeros in pad lanes. An output may overlap an input only where its comment says so. With
// `accumulate`, a kernel adds to the output. Kernels use the calling thread's OpenMP team and give the same bits for
// any number of threads.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/simd/feature_map.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"
#include "trainyard/nn/cpu/simd/transformer_arguments.h"

namespace trainyard::nn::cpu {

enum class UnitActivation : uint8_t { kNone, kRelu, kRelu6, kSilu, kHardSwish, kHardSigmoid, kSigmoid, kGelu, kTanh };

// Batch normalization's forward in training, with the following addition and activation. One pass over the input
// collects the statistics, a second one writes the output:
//   mean, variance over (batch, pixels); scale = weight / sqrt(variance + epsilon); shift = bias - mean * scale
//   output = activation(input * scale + shift [+ residual])
struct NormForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;  // with a residual: kNone or kRelu
  double epsilon = 1e-5;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  const float* weight = nullptr;   // [channels] or null for ones
  const float* bias = nullptr;     // [channels]
  void* output = nullptr;          // may be `input` or `residual`
  uint8_t* mask = nullptr;         // with residual and kRelu: one bit an element, set where output > 0
  float* mean = nullptr;           // [padded] out
  float* variance = nullptr;       // [padded] out, biased
  float* scale = nullptr;          // [padded] out
  float* shift = nullptr;          // [padded] out
  // [2 channels], or null: means, then biased variances. norm_moments() writes those of this batch; norm_with_moments()
  // normalizes with them, after they may have been combined with other batches.
  double* moments = nullptr;
};

constexpr int kMaxGradients = 4;

// The backward of NormForward:
//   u = input * scale + shift (+ residual), g = the sum of the incoming gradients, d = g * activation'(u)
//   bias' = sum d, weight' = sum d * xhat, xhat = (input - mean) / sqrt(variance + epsilon)
//   input' = scale * (d - mean(d) - xhat * mean(d * xhat))
struct NormBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;
  double epsilon = 1e-5;
  const void* gradients[kMaxGradients] = {};  // added up in registers
  int gradient_count = 1;
  const void* input = nullptr;    // as in forward
  const uint8_t* mask = nullptr;  // forward's, with a residual and kRelu; null: u is computed again
  const float *mean = nullptr, *variance = nullptr, *scale = nullptr, *shift = nullptr;  // [padded], of forward
  void* masked = nullptr;            // null, or receives d, the residual's gradient; may be one of `gradients`
  void* input_gradient = nullptr;    // may be one of `gradients`, or `input`
  float* weight_gradient = nullptr;  // [padded] out
  float* bias_gradient = nullptr;    // [padded] out
  // [2 channels], or null: sums of d, then of d * (input - mean). norm_gradient_sums() writes those of this batch, and
  // all outputs but the input's gradient; norm_backward_with_sums() reads those over all `count` values that the mean
  // and the variance are of, and writes the input's gradient.
  double* sums = nullptr;
  double count = 0;
};

// output = activation(input * scale + shift [+ residual]): inference, and recomputation of NormForward's output.
struct ScaleShift {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;
  const void* input = nullptr;
  const void* residual = nullptr;                  // or null
  const float *scale = nullptr, *shift = nullptr;  // [padded]
  void* output = nullptr;                          // may be `input` or `residual`
};

// Copies a plain float [N, C, H, W], of any strides (in elements), into a map. Pad lanes become zero.
struct ToBlocked {
  MapShape shape;
  DataType dtype = DataType::kFloat;  // of the map
  const float* plain = nullptr;
  int64_t strides[4] = {};
  void* map = nullptr;
};
// Copies a map into a plain float [N, C, H, W].
struct ToPlain {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* map = nullptr;
  float* plain = nullptr;  // contiguous [N, C, H, W]
};

// output = activation(sum of inputs). With kRelu the kernel may also write a mask, as NormForward does.
struct SumForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;  // kNone or kRelu
  const void* inputs[kMaxGradients] = {};
  int input_count = 2;
  uint8_t* mask = nullptr;  // or null
  void* output = nullptr;   // may be one of `inputs`
};

// output = activation(input).
struct ActivationForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kRelu;
  const void* input = nullptr;
  void* output = nullptr;  // may be `input`
};

// input_gradient (+)= (sum of gradients) * activation'(input). A mask, if given, replaces the derivative; `input` is
// then not read.
struct ActivationBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kRelu;
  const void* gradients[kMaxGradients] = {};
  int gradient_count = 1;
  const void* input = nullptr;
  const uint8_t* mask = nullptr;
  void* input_gradient = nullptr;  // may be one of `gradients`
  bool accumulate = false;
};

struct Window {
  int64_t kernel_height = 1, kernel_width = 1, stride_height = 1, stride_width = 1;
  int64_t top = 0, left = 0;  // padding; the output's size determines that at the bottom and right
};

// Computes each window's maximum over the pixels inside the image. The first of equal pixels in row order, but the last
// of several NaN (as in PyTorch), is selected and gets the gradient. `argmax` receives its index in the window, one
// byte an output element, so a window has at most 255 pixels.
struct MaxPoolForward {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  const void* input = nullptr;
  void* output = nullptr;
  uint8_t* argmax = nullptr;  // or null in inference
};
struct MaxPoolBackward {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  const void* gradient = nullptr;  // of the output
  const uint8_t* argmax = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// Averages over windows. The divisor is the number of pixels inside the image or, with `count_padding` (nn::Pool),
// inside the padded image, which reaches `bottom` and `right` pixels further.
struct AveragePool {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  int64_t bottom = 0, right = 0;
  bool count_padding = false;
  const void* input = nullptr;  // backward: the gradient of the output
  void* output = nullptr;       // backward: the gradient of the input
  bool accumulate = false;      // backward only
};

// output [batch, out] = input [batch, in] * weight [out, in]^T + bias [out]: float, contiguous. A null bias counts as
// zeros. Beyond kMostSamples samples BLAS is faster, and so it is for both backwards.
struct LinearForward {
  static constexpr int64_t kMostSamples = 16;
  static constexpr int64_t kMostRoundedSamples = 4;
  int64_t batch = 1, in = 1, out = 1;
  const float *input = nullptr, *weight = nullptr, *bias = nullptr;
  // Weights in bfloat16 instead of `weight`, of at most kMostRoundedSamples; products and sums are float all the same.
  const void* rounded_weight = nullptr;
  float* output = nullptr;
};

// input_gradient [batch, in] = output_gradient [batch, out] * weight [out, in]
struct LinearBackwardData {
  int64_t batch = 1, in = 1, out = 1;
  const float *output_gradient = nullptr, *weight = nullptr;
  float* input_gradient = nullptr;
};

// weight_gradient [out, in] (+)= output_gradient [batch, out]^T * input [batch, in]
struct LinearBackwardWeights {
  int64_t batch = 1, in = 1, out = 1;
  const float *input = nullptr, *output_gradient = nullptr;
  float* weight_gradient = nullptr;
  bool accumulate = false;
};

// output = the mean of each channel over its pixels. Backward: input_gradient (+)= gradient / pixels.
struct GlobalAverageForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  float* output = nullptr;  // [N, C] contiguous
};
struct GlobalAverageBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const float* gradient = nullptr;  // [N, C] contiguous
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// output = input * factor [+ residual], with a factor for each channel of each sample, float [N, C] contiguous:
// squeeze-and-excitation, layer scale.
struct ScaleChannelsForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  const float* factor = nullptr;
  const void* residual = nullptr;  // or null
  void* output = nullptr;
};
struct ScaleChannelsBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* gradient = nullptr;
  const void* input = nullptr;
  const float* factor = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
  float* factor_gradient = nullptr;  // [N, C] out: sum over pixels of gradient * input
};

// Copies channels [from, from + count) of `source` to channels [to, to + count) of `target`, for concatenation, its
// backward and channel padding. Other channels of `target` stay as they are, or become zero with `clear_rest`. Pad
// lanes become zero in every block that is written to (with `clear_rest`: in all).
struct CopyChannels {
  MapShape source_shape, target_shape;
  DataType dtype = DataType::kFloat;
  int64_t from = 0, to = 0, count = 0;
  const void* source = nullptr;
  void* target = nullptr;
  bool accumulate = false;
  bool clear_rest = false;
};

// Output channel c is input channel channels[c].
struct PermuteChannels {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const int32_t* channels = nullptr;  // [shape.channels]
  const void* input = nullptr;
  void* output = nullptr;
  bool accumulate = false;
};

// nn::LocalResponseNorm and its backward, which recomputes the windows' sums.
struct LocalResponseForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  int64_t radius = 0;
  float bias = 1, alpha = 1, beta = 0.5;
  const void* input = nullptr;
  void* output = nullptr;
};
struct LocalResponseBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  int64_t radius = 0;
  float bias = 1, alpha = 1, beta = 0.5;
  const void* gradient = nullptr;
  const void* input = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// Convolves maps in blocked layout when oneDNN has no kernel, or only one that multiplies many zeros. With `lanes`
// below the block, each group is `lanes` neighbouring channels of one block (1: depthwise). With `lanes` equal to the
// block, groups may be anything: a block is then computed from all blocks that its groups reach into.
struct GroupedConvolution {
  MapShape input_shape, output_shape;  // of the convolution's forward
  DataType dtype = DataType::kFloat;
  int64_t lanes = 1;
  int64_t group_in = 1, group_out = 1;          // channels of a group
  int64_t input_blocks = 1, output_blocks = 1;  // the most blocks that a block of the other side reads
  Window window;
  int64_t dilation_height = 1, dilation_width = 1;
  int threads = 1;          // of the team
  void* scratch = nullptr;  // scratch_bytes(); aligned to a block of floats

  struct Blocks {
    int64_t first = 0, count = 0;
  };
  // Return the blocks of the other side that block `b` of the output, or of the input, reaches into.
  [[gnu::always_inline]] Blocks inputs_of(int64_t b) const { return reached(b, output_shape, group_out, group_in); }
  [[gnu::always_inline]] Blocks outputs_of(int64_t b) const { return reached(b, input_shape, group_in, group_out); }
  [[gnu::always_inline]] static Blocks reached(int64_t b, const MapShape& from, int64_t from_group, int64_t to_group) {
    const int64_t first = b * from.block, end = first + from.block < from.channels ? first + from.block : from.channels;
    const int64_t first_block = first / from_group * to_group / from.block;
    return {first_block, (((end - 1) / from_group + 1) * to_group - 1) / from.block + 1 - first_block};
  }

  // Returns the number of pairs of an output block and an input block.
  [[gnu::always_inline]] int64_t pairs() const { return output_shape.blocks() * input_blocks; }
  [[gnu::always_inline]] int64_t window_pixels() const { return window.kernel_height * window.kernel_width; }
  // Return the number of floats in the packed weights: forward's, and those of the backward to the data.
  [[gnu::always_inline]] int64_t weights() const { return pairs() * window_pixels() * lanes * input_shape.block; }
  [[gnu::always_inline]] int64_t transposed_weights() const {
    return input_shape.blocks() * output_blocks * window_pixels() * lanes * input_shape.block;
  }

  // Each thread keeps the rows that one row of windows covers as floats, with zero padding, and a row of sums while it
  // adds several blocks. Outputs are computed kTile neighbours at a time, also beyond the end of the row.
  static constexpr int64_t kTile = 8;
  [[gnu::always_inline]] static int64_t tiles(int64_t pixels) { return (pixels + kTile - 1) / kTile * kTile; }
  [[gnu::always_inline]] int64_t kept_rows() const { return (window.kernel_height - 1) * dilation_height + 1; }
  [[gnu::always_inline]] int64_t reach() const { return (window.kernel_width - 1) * dilation_width; }
  // Returns, for the backward to the data, the pixels of an input row whose places are equal modulo the stride (a
  // phase), rounded up to tiles.
  [[gnu::always_inline]] int64_t phase_pixels() const {
    return tiles((input_shape.width + window.stride_width - 1) / window.stride_width);
  }
  [[gnu::always_inline]] int64_t row_pixels() const {
    const int64_t covered = (tiles(output_shape.width) - 1) * window.stride_width + reach() + 1;
    const int64_t forward = covered > window.left + input_shape.width ? covered : window.left + input_shape.width;
    const int64_t phase = phase_pixels() + window.left + 1;
    const int64_t backward = reach() + (phase > output_shape.width ? phase : output_shape.width);
    return forward > backward ? forward : backward;
  }
  [[gnu::always_inline]] int64_t sum_pixels() const {
    const int64_t forward = tiles(output_shape.width), backward = phase_pixels() * window.stride_width;
    return forward > backward ? forward : backward;
  }
  // Returns the scratch memory of one thread, in floats.
  [[gnu::always_inline]] int64_t thread_scratch() const {
    const int64_t words = kept_rows() + window.kernel_height + window.stride_width * window.kernel_width;
    const int64_t blocks =
        kept_rows() * row_pixels() + sum_pixels() + (words * 2 + input_shape.block - 1) / input_shape.block;
    return blocks * input_shape.block;
  }
  [[gnu::always_inline]] int64_t scratch_bytes() const {
    return thread_scratch_bytes(thread_scratch() * int64_t{sizeof(float)}, threads);
  }
};
// forward_weights: float [output block][input block][kernel row][kernel column][i < lanes][lane], from input channel i
// of the lane's group (of the block, where `lanes` is the block) to the lane's output channel. Input blocks are counted
// from the first that the output block reaches into.
struct GroupedConvolutionForward : GroupedConvolution {
  const void* input = nullptr;
  const float* forward_weights = nullptr;
  const float* bias = nullptr;                        // [padded] or null
  bool sum = false;                                   // adds to `output` before the activation
  UnitActivation activation = UnitActivation::kNone;  // kNone or kRelu
  void* output = nullptr;
};
// backward_weights: float [input block][output block][kernel row][kernel column][o < lanes][lane], the same with the
// sides exchanged.
struct GroupedConvolutionBackwardData : GroupedConvolution {
  const void* gradient = nullptr;
  const float* backward_weights = nullptr;
  void* input_gradient = nullptr;
};
// weights_gradient: float [output block][input block][kernel row][kernel column][o < lanes][lane], from the lane's
// input channel to output channel o of its group (of the block, where `lanes` is the block).
struct GroupedConvolutionBackwardWeights : GroupedConvolution {
  const void* input = nullptr;
  const void* gradient = nullptr;
  float* weights_gradient = nullptr;
  float* bias_gradient = nullptr;  // [padded] or null

  // Returns the number of parts of the batch that are summed separately, so that there is work for many threads, and
  // added up at the end.
  [[gnu::always_inline]] int64_t pieces() const {
    const int64_t wanted = (64 + pairs() - 1) / pairs();
    return wanted < input_shape.batch ? wanted : input_shape.batch;
  }
  [[gnu::always_inline]] int64_t piece_sums() const { return weights() + output_shape.padded_channels(); }
  // Adds memory for the parts' sums to what the other directions need.
  [[gnu::always_inline]] int64_t scratch_bytes() const {
    return GroupedConvolution::scratch_bytes() + pieces() * piece_sums() * int64_t{sizeof(float)};
  }
};

// output (+)= input * factor: stochastic depth, with a factor for each sample (float [N]), and dropout, with one for
// each element (per_element; float [N, C, H, W] contiguous). The backward is the same operation on the gradient.
struct ScaleSamples {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  const float* factor = nullptr;
  bool per_element = false;
  void* output = nullptr;  // may be `input`
  bool accumulate = false;
};

// result = the largest absolute value; NaN where one is NaN.
struct LargestMagnitude {
  int64_t count = 0;
  DataType dtype = DataType::kFloat;
  const void* values = nullptr;
  float* result = nullptr;
};

// values: float [rows, columns]. result = the largest sum of a row's absolute values; NaN where a row has NaN.
struct LargestRowSum {
  int64_t rows = 0, columns = 0;
  const float* values = nullptr;
  float* result = nullptr;
};

}  // namespace trainyard::nn::cpu
