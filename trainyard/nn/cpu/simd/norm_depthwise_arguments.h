// The arguments of a batch norm's kernels that compute the depthwise convolution behind it, too. Included by code that
// is compiled for one instruction set, as arguments.h is.
#pragma once

#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu {

// Batch normalization in training with its activation, and the depthwise 3x3 convolution that alone reads the result:
//   output = convolution(activation(input * scale + shift), weights)
// The map between the two is made row by row in a core's nearest cache and never written, in the backward either.
struct NormDepthwise {
  static constexpr int64_t kWindow = 3;
  static constexpr int64_t kStripRows = 16;            // rows of one piece of work, of small images several samples
  static constexpr int64_t kStripPixels = 256;         // small images share a strip up to so many pixels,
  static constexpr int64_t kStripSamples = 16;         // and so many samples
  static constexpr int64_t kBefore = 2, kBehind = 20;  // pixels of zeros before a line, and at least so many behind it

  MapShape input_shape, output_shape;
  int64_t stride = 1;              // 1 or 2
  int64_t top = 0, left = 0;       // padding, at most 2
  const float* weights = nullptr;  // [channels, 1, 3, 3]
  int threads = 1;                 // of the team
  void* scratch = nullptr;         // scratch_bytes() of the direction; aligned to 64

  [[gnu::always_inline]] int64_t block() const { return input_shape.block; }
  // Returns the number of pixels in the memory of a line: a row of either map.
  [[gnu::always_inline]] int64_t line_pixels() const {
    const int64_t wide = output_shape.width * stride;
    return kBefore + (wide > input_shape.width ? wide : input_shape.width) + kBehind;
  }
  // Each thread has three lines of the map whose neighbouring rows meet, and two more for single rows.
  [[gnu::always_inline]] int64_t thread_bytes() const {
    return (kWindow + 2) * line_pixels() * block() * int64_t{sizeof(float)};
  }
  // Return how a map is divided into strips: parts of an image, samples in a strip, and strips of a channel block.
  [[gnu::always_inline]] static int64_t parts(const MapShape& map) {
    return map.height > 0 ? (map.height + kStripRows - 1) / kStripRows : 1;
  }
  [[gnu::always_inline]] static int64_t strip_samples(const MapShape& map) {
    const int64_t fitting = kStripPixels / (map.pixels() > 0 ? map.pixels() : 1);
    return fitting < 1 ? 1 : fitting < kStripSamples ? fitting : kStripSamples;
  }
  [[gnu::always_inline]] static int64_t strips(const MapShape& map) {
    return (map.batch + strip_samples(map) - 1) / strip_samples(map) * parts(map);
  }
};

struct NormDepthwiseForward : NormDepthwise {
  NormForward norm;      // without a residual; its output is not written
  bool collects = true;  // false: recomputes the output with norm.scale and norm.shift
  void* output = nullptr;

  [[gnu::always_inline]] int64_t scratch_bytes() const { return thread_scratch_bytes(thread_bytes(), threads); }
};

// norm.gradients is not read; norm.input_gradient is no input's memory. norm.weight_gradient and bias_gradient are
// those of the norm.
struct NormDepthwiseBackward : NormDepthwise {
  NormBackward norm;
  const void* output_gradient = nullptr;
  float* weights_gradient = nullptr;  // [channels, 1, 3, 3]

  // Returns the bytes of a strip's sums: two of a norm in double, and the gradients of the windows in float.
  [[gnu::always_inline]] int64_t strip_bytes() const {
    return block() * (2 * int64_t{sizeof(double)} + kWindow * kWindow * int64_t{sizeof(float)});
  }
  [[gnu::always_inline]] int64_t scratch_bytes() const {
    return thread_scratch_bytes(thread_bytes(), threads) + input_shape.blocks() * strips(input_shape) * strip_bytes();
  }
};

}  // namespace trainyard::nn::cpu
