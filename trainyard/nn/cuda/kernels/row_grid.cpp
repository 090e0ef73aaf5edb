#include "trainyard/nn/cuda/kernels/row_grid.h"

#include <algorithm>

namespace trainyard::nn::cuda {
namespace {

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

RowGrid row_grid(int64_t rows, int64_t channels, int element_bytes, bool aligned, int multiprocessors) {
  RowGrid grid;
  const int wide = 16 / element_bytes;
  if (aligned && channels % wide == 0) grid.vector = wide;
  const int64_t groups = channels / grid.vector;
  // As few blocks side by side as may be, all equally wide: 18 groups are 18 threads, 36 are twice 18.
  grid.channel_blocks = static_cast<int>(ceil_divide(groups, kWidestChannels));
  grid.channel_threads = static_cast<int>(ceil_divide(groups, grid.channel_blocks));
  grid.row_threads = kBlockThreads / grid.channel_threads;
  const int64_t useful = ceil_divide(rows, int64_t{grid.row_threads} * kRowsEach);
  const int64_t full = ceil_divide(int64_t{multiprocessors} * kBlocksEach, grid.channel_blocks);
  grid.row_blocks = static_cast<int>(std::clamp<int64_t>(useful, 1, full));
  return grid;
}

}  // namespace trainyard::nn::cuda
