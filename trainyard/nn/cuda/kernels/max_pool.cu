// Max pooling, NHWC, one byte of index an output element where ATen keeps eight. The backward gathers: each pixel asks
// the windows that cover it, so that no two threads write one place and sums have one order.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

// One thread of a grid over [batch, height, width, channels / kVector].
struct Place {
  int batch, row, column, channel;

  __device__ Place(int64_t index, int height, int width, int groups, int vector) {
    channel = static_cast<int>(index % groups) * vector;
    index /= groups;
    column = static_cast<int>(index % width);
    index /= width;
    row = static_cast<int>(index % height);
    batch = static_cast<int>(index / height);
  }
};

template <typename T, int kVector>
__global__ void max_pool_kernel(PoolShape s, const T* x, T* y, uint8_t* index, int64_t count) {
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (own >= count) return;
  const Place out(own, s.out_height, s.out_width, s.channels / kVector, kVector);
  float best[kVector];
  Pack<uint8_t, kVector> where;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    best[v] = -INFINITY;
    where.value[v] = 255;
  }
  const int top = out.row * s.stride_height - s.top, left = out.column * s.stride_width - s.left;
  for (int i = max(0, -top); i < s.kernel_height && top + i < s.height; ++i) {
    for (int j = max(0, -left); j < s.kernel_width && left + j < s.width; ++j) {
      const int64_t pixel = (static_cast<int64_t>(out.batch) * s.height + top + i) * s.width + left + j;
      const Pack<T, kVector> pack = load<T, kVector>(x + pixel * s.channels + out.channel);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const float value = to_float(pack.value[v]);
        if (value > best[v] || isnan(value) || where.value[v] == 255) {
          best[v] = value;
          where.value[v] = static_cast<uint8_t>(i * s.kernel_width + j);
        }
      }
    }
  }
  Pack<T, kVector> result;
#pragma unroll
  for (int v = 0; v < kVector; ++v) result.value[v] = from_float<T>(best[v]);
  store(y + own * kVector, result);
  if (index != nullptr) store(index + own * kVector, where);
}

template <typename T, int kVector>
__global__ void max_pool_backward_kernel(PoolShape s, const T* dy, const uint8_t* index, T* dx, int64_t count) {
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (own >= count) return;
  const Place in(own, s.height, s.width, s.channels / kVector, kVector);
  float sum[kVector] = {};
  // Windows that hold this pixel: their first row is at most `row` and more than row - kernel_height.
  const int row = in.row + s.top, column = in.column + s.left;
  const int first_row = row < s.kernel_height ? 0 : (row - s.kernel_height) / s.stride_height + 1;
  const int first_column = column < s.kernel_width ? 0 : (column - s.kernel_width) / s.stride_width + 1;
  for (int i = first_row; i < s.out_height && i * s.stride_height <= row; ++i) {
    for (int j = first_column; j < s.out_width && j * s.stride_width <= column; ++j) {
      const int64_t out = (static_cast<int64_t>(in.batch) * s.out_height + i) * s.out_width + j;
      const Pack<uint8_t, kVector> where = load<uint8_t, kVector>(index + out * s.channels + in.channel);
      const Pack<T, kVector> gradient = load<T, kVector>(dy + out * s.channels + in.channel);
      const int here = (row - i * s.stride_height) * s.kernel_width + column - j * s.stride_width;
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] += where.value[v] == here ? to_float(gradient.value[v]) : 0.0F;
    }
  }
  Pack<T, kVector> result;
#pragma unroll
  for (int v = 0; v < kVector; ++v) result.value[v] = from_float<T>(sum[v]);
  store(dx + own * kVector, result);
}

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void max_pool(const PoolShape& shape, const void* x, void* y, uint8_t* index, cudaStream_t stream) {
  const int64_t count = int64_t{shape.batch} * shape.out_height * shape.out_width * (shape.channels / shape.vector);
  with_element(shape.element, shape.vector, [&](auto element, auto vector) {
    using T = decltype(element);
    max_pool_kernel<T, decltype(vector)::value>
        <<<blocks_for(count), kThreads, 0, stream>>>(shape, static_cast<const T*>(x), static_cast<T*>(y), index, count);
  });
  check_cuda(cudaGetLastError(), "max pooling");
}

void max_pool_backward(const PoolShape& shape, const void* dy, const uint8_t* index, void* dx, cudaStream_t stream) {
  const int64_t count = int64_t{shape.batch} * shape.height * shape.width * (shape.channels / shape.vector);
  with_element(shape.element, shape.vector, [&](auto element, auto vector) {
    using T = decltype(element);
    max_pool_backward_kernel<T, decltype(vector)::value><<<blocks_for(count), kThreads, 0, stream>>>(
        shape, static_cast<const T*>(dy), index, static_cast<T*>(dx), count);
  });
  check_cuda(cudaGetLastError(), "backward of max pooling");
}

}  // namespace trainyard::nn::cuda
