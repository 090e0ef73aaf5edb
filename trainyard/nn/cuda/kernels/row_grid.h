// The launch grid of a kernel over a matrix [rows, channels] (channels innermost: an NHWC image's pixels, or a batch of
// vectors). A thread processes one group of neighbouring channels, whose constants stay in its registers, for several
// rows.
#pragma once

#include <cstdint>

namespace trainyard::nn::cuda {

struct RowGrid {
  int vector = 1;           // channels of a group: 16 bytes if channels and addresses allow it, else 1
  int channel_threads = 1;  // of a block: groups side by side, at most kWidestChannels
  int row_threads = 1;      // of a block: rows side by side
  int channel_blocks = 1;   // of the grid
  int row_blocks = 1;

  int threads() const { return channel_threads * row_threads; }
};

// `aligned`: all addresses are multiples of 16. rows, channels and multiprocessors at least 1. Returns enough blocks to
// fill the GPU once, or fewer when a thread would have less than kRowsEach rows, so that partial sums stay few.
RowGrid row_grid(int64_t rows, int64_t channels, int element_bytes, bool aligned, int multiprocessors);

inline constexpr int kBlockThreads = 256;  // at most; those of a block are rows times groups
inline constexpr int kWidestChannels = 32;
inline constexpr int kRowsEach = 16;
inline constexpr int kBlocksEach = 8;  // a multiprocessor: 2,048 threads, as many as it holds

}  // namespace trainyard::nn::cuda
