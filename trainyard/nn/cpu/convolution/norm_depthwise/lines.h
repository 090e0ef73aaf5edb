// What both directions of a batch norm with its depthwise convolution have in common: strips of a channel block, lines
// of floats with zeros around them, and the windows' weights. Follows the rules of compiled_for.h.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/convolution/sliding_row.h"
#include "trainyard/nn/cpu/simd/norm_depthwise_arguments.h"
#include "trainyard/nn/cpu/simd/output.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kRows = NormDepthwise::kWindow;  // of a window, and columns

// Rows [first, last) of some neighbouring samples of a channel block.
struct Strip {
  int64_t block, sample, samples, first, last;
};

// Returns the k-th strip of a block. Strips depend on the shape only, so that sums are the same for any number of
// threads.
inline Strip strip_of(const MapShape& map, int64_t block, int64_t k) {
  const int64_t parts = NormDepthwise::parts(map), samples = NormDepthwise::strip_samples(map);
  const int64_t part = k % parts, sample = k / parts * samples;
  return {.block = block,
          .sample = sample,
          .samples = smaller(samples, map.batch - sample),
          .first = map.height * part / parts,
          .last = map.height * (part + 1) / parts};
}

// The windows of a block's channels: [row][column][lane], zero in pad lanes.
struct Windows {
  float weights[kRows * kRows][kLanes];
};

inline Windows windows_of(const NormDepthwise& a, int64_t block) {
  Windows windows = {};
  const int64_t count = smaller(kLanes, a.input_shape.channels - block * kLanes);
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t k = 0; k < kRows * kRows; ++k) {
      windows.weights[k][c] = a.weights[(block * kLanes + c) * kRows * kRows + k];
    }
  }
  return windows;
}

// Lines of a thread: row r of an image is line r modulo their number. Zeros are before and behind each, since every row
// has the same width.
class Lines {
 public:
  Lines(const NormDepthwise& a, float* memory, int64_t count)
      : memory_(memory), floats_(a.line_pixels() * kLanes), count_(count) {
    for (int64_t i = 0; i < count * floats_; i += kLanes) store(memory + i, fill(0));
    forget();
  }

  // Drops all rows, for another image.
  void forget() {
    for (int64_t& row : held_) row = -1;
  }
  // Returns the first pixel of a row's line.
  float* at(int64_t row) const { return memory_ + row % count_ * floats_ + NormDepthwise::kBefore * kLanes; }
  // Returns it after make(line), unless it has been made already.
  template <typename Make>
  const float* get(int64_t row, const Make& make) {
    float* const line = at(row);
    if (held_[row % count_] != row) {
      make(line);
      held_[row % count_] = row;
    }
    return line;
  }

 private:
  float* memory_;
  int64_t floats_, count_;
  int64_t held_[kRows];
};

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
