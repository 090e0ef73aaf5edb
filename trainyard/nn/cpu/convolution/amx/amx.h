// Convolutions of bfloat16 maps with the processor's matrix unit (AMX: tiles of 16 rows of 64 bytes, products of pairs
// of bfloat16 with float sums), one group, any window, stride and dilation.
//
// Every direction is a convolution with stride 1 on *phases*. A phase of a map is the set of pixels that are `step`
// rows and columns apart from a first one. Forward reads the input in as many phases as its stride has pixels and
// writes one output; the gradient of the input reads one output gradient and writes that many phases. Rows of a phase
// are consecutive in a panel, each followed by its zero padding ("pitch" pixels), so that a tap of the window is a
// distance within the panel, whole tiles of pixels cross the ends of rows, and results for the pixels between two rows
// are dropped.
//
// Included by code that is compiled for this instruction set only, so it includes nothing that has code of its own
// (nn/cpu/simd/kernels.h). Every function uses `threads` threads of OpenMP and gives the same bits for any number.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/own_kernel_arguments.h"

namespace trainyard::nn::cpu::amx {

// Pixels (row + i * step, column + j * step) of a map.
struct Phase {
  int64_t row = 0, column = 0;
  int64_t first_tap = 0, taps = 0;  // for an output phase: its taps
};

struct Tap {
  int64_t phase = 0;     // of the input
  int64_t distance = 0;  // pixels from the output's position in the panel to the input's
  int64_t place = 0;     // in the window, counted in rows
};

// A convolution from `in` to `out`, whichever of the two is the image.
struct Geometry {
  int64_t batch = 0;
  int64_t in_blocks = 0, out_blocks = 0;  // of 16 channels
  int64_t in_channels = 0, out_channels = 0;
  int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
  int64_t in_step_y = 1, in_step_x = 1, out_step_y = 1, out_step_x = 1;
  int64_t rows = 0, columns = 0;              // of the largest output phase
  int64_t first_row = 0, first_column = 0;    // of the input phases' pixels that the first output needs
  int64_t reach_rows = 0, reach_columns = 0;  // from a window's first row and column to its last
  int64_t pitch = 0;                          // pixels from one row of the panel to the next
  int64_t window = 0;                         // taps: positions of the window, or its rows
  const Phase *in_phases = nullptr, *out_phases = nullptr;
  int64_t in_phase_count = 0, out_phase_count = 0;
  const Tap* taps = nullptr;  // [window], ordered by output phase

  // For a network's first convolution, whose input is plain [batch, image_channels, in_height, image_width] of
  // bfloat16; 0: the input is a map. A window's row, image_window pixels of all channels, is then one pixel of
  // image_window * image_channels channels, and a row of the panel has a pixel for each column of the output.
  int64_t image_channels = 0, image_window = 0, image_width = 0, image_left = 0, image_step = 1;

  // Returns the offset of the weight of a row's channel in an output's weights [image_channels, window, image_window],
  // relative to that of its first pixel in the first channel.
  [[gnu::always_inline]] int64_t image_weight(int64_t channel) const {
    return channel % image_channels * window * image_window + channel / image_channels;
  }
  // Returns the bytes of an image's row, channels innermost, with its zero padding.
  [[gnu::always_inline]] int64_t image_row_bytes() const {
    if (image_channels == 0) return 0;
    const int64_t pixels = image_left + image_width + columns * image_step + image_window;
    return (pixels * image_channels * 2 + 128 + 63) / 64 * 64;
  }
  // Returns the pairs of blocks of the input: a tile's row holds 32 channels.
  [[gnu::always_inline]] int64_t in_pairs() const { return (in_blocks + 1) / 2; }
};

// Packs float weights [out_channels, in_channels, window] of the forward convolution: tiles
// [output block][tap][pair of input blocks][16 pairs of channels][16 outputs][2]. `of_backward` packs those of the
// gradient of the input, whose `geometry` has in and out exchanged.
struct Pack {
  Geometry geometry;
  bool of_backward = false;
  const float* plain = nullptr;
  void* packed = nullptr;  // weights_bytes(), aligned to 64
  int threads = 1;
};
[[gnu::always_inline]] inline int64_t weights_bytes(const Geometry& g) {
  return g.out_blocks * g.window * g.in_pairs() * 1024;
}
void pack(const Pack& a);

using Forward = OwnForward<Geometry>;
int64_t forward_scratch_bytes(const Geometry& geometry, int threads);
void forward(const Forward& a);

// gradient: float [window][input block][output block][16 inputs][16 outputs], by the geometry of the forward.
using BackwardWeights = OwnBackwardWeights<Geometry>;
[[gnu::always_inline]] inline int64_t gradient_bytes(const Geometry& g) {
  return g.window * g.in_blocks * g.out_blocks * 1024;
}
int64_t backward_weights_scratch_bytes(const Geometry& geometry, int threads);
void backward_weights(const BackwardWeights& a);

// Turns the result of backward_weights() into the gradient of the plain weights.
struct Unpack {
  Geometry geometry;
  const float* gradient = nullptr;
  float* plain = nullptr;
  int threads = 1;
};
void unpack(const Unpack& a);

}  // namespace trainyard::nn::cpu::amx
