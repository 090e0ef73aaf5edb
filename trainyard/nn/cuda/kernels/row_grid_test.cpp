#include "trainyard/nn/cuda/kernels/row_grid.h"

#include <gtest/gtest.h>

namespace trainyard::nn::cuda::row_grid_test {
namespace {

TEST(RowGrid, CoversEveryRowAndChannelWithOneThreadAtATime) {
  for (const int64_t rows : {1, 3, 49, 1000, 100352, 802816 * 4}) {
    for (const int64_t channels : {1, 3, 8, 20, 64, 144, 255, 256, 288, 576, 2048}) {
      for (const int bytes : {2, 4}) {
        const RowGrid grid = row_grid(rows, channels, bytes, true, 132);
        EXPECT_EQ(channels % grid.vector, 0);
        const int64_t groups = channels / grid.vector;
        // All groups, and no block without one.
        EXPECT_GE(int64_t{grid.channel_threads} * grid.channel_blocks, groups);
        EXPECT_LT(int64_t{grid.channel_threads} * (grid.channel_blocks - 1), groups);
        EXPECT_LE(grid.threads(), kBlockThreads);
        EXPECT_GT(grid.threads(), kBlockThreads - grid.channel_threads);
        EXPECT_LE(grid.channel_threads, kWidestChannels);
        EXPECT_GE(grid.row_blocks, 1);
        // No block without a row.
        EXPECT_LT(int64_t{grid.row_blocks - 1} * grid.row_threads, rows);
      }
    }
  }
}

// Widths of mobilenet_v2 in 16 bits: no thread is without channels.
TEST(RowGrid, LeavesNoThreadIdleWhereGroupsDivide) {
  for (const int64_t channels : {16, 24, 32, 96, 144, 192, 288, 384, 576, 960}) {
    const RowGrid grid = row_grid(128 * 28 * 28, channels, 2, true, 132);
    EXPECT_EQ(int64_t{grid.channel_threads} * grid.channel_blocks * 8, channels);
  }
}

TEST(RowGrid, LoadsSixteenBytesWhereChannelsAndAddressesAllowIt) {
  EXPECT_EQ(row_grid(100, 64, 2, true, 132).vector, 8);
  EXPECT_EQ(row_grid(100, 64, 4, true, 132).vector, 4);
  EXPECT_EQ(row_grid(100, 64, 2, false, 132).vector, 1);
  EXPECT_EQ(row_grid(100, 12, 2, true, 132).vector, 1);
  EXPECT_EQ(row_grid(100, 12, 4, true, 132).vector, 4);
}

TEST(RowGrid, FillsTheGpuOnceAndLeavesSmallMapsWhole) {
  // The largest map of ResNet-50 at batch 256: 8 blocks a multiprocessor.
  const RowGrid large = row_grid(256 * 112 * 112, 64, 2, true, 132);
  EXPECT_EQ(large.channel_blocks, 1);
  EXPECT_EQ(large.row_blocks, 132 * kBlocksEach);
  // Its smallest, of 2,048 channels: no thread has fewer rows than it should.
  const RowGrid small = row_grid(256 * 7 * 7, 2048, 2, true, 132);
  EXPECT_EQ(small.channel_blocks, 8);
  EXPECT_EQ(small.row_blocks, (256 * 7 * 7 + 8 * kRowsEach - 1) / (8 * kRowsEach));
  EXPECT_EQ(row_grid(1, 1000, 4, true, 132).row_blocks, 1);
}

}  // namespace
}  // namespace trainyard::nn::cuda::row_grid_test
