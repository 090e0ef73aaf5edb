// Sums over rows of a matrix, in an order that does not depend on timing: each thread adds up its rows, a block its
// threads in a tree, and finish_sums the blocks.
#pragma once

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

// Where a thread of a RowGrid works: channels [first, first + kVector), rows `row`, `row + stride`, ...
template <int kVector>
struct Lane {
  int first;
  bool inside;
  int64_t row, stride;

  __device__ explicit Lane(int channels)
      : first(static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kVector),
        inside(first < channels),
        row(static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y),
        stride(static_cast<int64_t>(gridDim.y) * blockDim.y) {}
};

// Calls visit(row) for each of the lane's rows with the loads of four of them on their way at once: load(row) gives
// what visit(row, loaded) gets.
template <int kVector, typename Load, typename Visit>
__device__ inline void each_row(const Lane<kVector>& lane, int64_t rows, const Load& load_row, const Visit& visit) {
  constexpr int kAhead = 4;
  int64_t row = lane.row;
  for (; row + (kAhead - 1) * lane.stride < rows; row += kAhead * lane.stride) {
    decltype(load_row(row)) loaded[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) loaded[i] = load_row(row + i * lane.stride);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) visit(row + i * lane.stride, loaded[i]);
  }
  for (; row < rows; row += lane.stride) visit(row, load_row(row));
}

// Adds the block's threads up and writes its pair of sums: partial [row_blocks, 2, channels]. All threads call it.
template <int kVector>
__device__ inline void write_sums(const Lane<kVector>& lane, int channels, const float (&first_sum)[kVector],
                                  const float (&second_sum)[kVector], float* partial) {
  extern __shared__ float shared[];  // [2 * kVector, row_threads, channel_threads]: neighbours in different banks
  const int plane = static_cast<int>(blockDim.x * blockDim.y);
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    shared[v * plane + own] = first_sum[v];
    shared[(kVector + v) * plane + own] = second_sum[v];
  }
  for (int count = static_cast<int>(blockDim.y); count > 1;) {
    const int half = (count + 1) / 2;  // where count is odd, the one in the middle waits for the next round
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < count - half) {
      const int other = own + half * static_cast<int>(blockDim.x);
#pragma unroll
      for (int v = 0; v < 2 * kVector; ++v) shared[v * plane + own] += shared[v * plane + other];
    }
    count = half;
  }
  // Row thread 0 wrote last what it reads here.
  if (threadIdx.y != 0 || !lane.inside) return;
  float* const sums = partial + static_cast<int64_t>(blockIdx.y) * 2 * channels + lane.first;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    sums[v] = shared[v * plane + own];
    sums[channels + v] = shared[(kVector + v) * plane + own];
  }
}

inline size_t sums_shared_bytes(const RowGrid& grid) {
  return sizeof(float) * 2 * static_cast<size_t>(grid.vector) * static_cast<size_t>(grid.threads());
}

inline dim3 blocks_of(const RowGrid& grid) {
  return {static_cast<unsigned>(grid.channel_blocks), static_cast<unsigned>(grid.row_blocks)};
}

inline dim3 threads_of(const RowGrid& grid) {
  return {static_cast<unsigned>(grid.channel_threads), static_cast<unsigned>(grid.row_threads)};
}

// Blocks of kFinishWidth channels with kFinishDepth threads each add up the parts; thread (channel, 0) of each then has
// both sums. Called by all threads of such a block; its kernel says __launch_bounds__(kFinishThreads), or the compiler
// may give so many threads more registers than there are.
constexpr int kFinishWidth = 32, kFinishDepth = 32, kFinishThreads = kFinishWidth * kFinishDepth;

__device__ inline double2 finish_sums(const float* partial, int parts, int channels, int channel) {
  __shared__ double shared[2][kFinishDepth][kFinishWidth];
  double first = 0, second = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += kFinishDepth) {
      const float* const sums = partial + static_cast<int64_t>(part) * 2 * channels + channel;
      first += sums[0];
      second += sums[channels];
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y != 0) return {0, 0};
  for (int depth = 1; depth < kFinishDepth; ++depth) {
    first += shared[0][depth][threadIdx.x];
    second += shared[1][depth][threadIdx.x];
  }
  return {first, second};
}

inline dim3 finish_blocks(int channels) {
  return {static_cast<unsigned>((channels + kFinishWidth - 1) / kFinishWidth)};
}

}  // namespace trainyard::nn::cuda
