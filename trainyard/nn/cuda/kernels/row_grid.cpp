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
  while (grid.channel_threads < 32 && grid.channel_threads < groups) grid.channel_threads *= 2;
  grid.row_threads = kBlockThreads / grid.channel_threads;
  grid.channel_blocks = static_cast<int>(ceil_divide(groups, grid.channel_threads));
  const int64_t useful = ceil_divide(rows, int64_t{grid.row_threads} * kRowsEach);
  const int64_t full = ceil_divide(int64_t{multiprocessors} * kBlocksEach, grid.channel_blocks);
  grid.row_blocks = static_cast<int>(std::clamp<int64_t>(useful, 1, full));
  return grid;
}

}  // namespace trainyard::nn::cuda
