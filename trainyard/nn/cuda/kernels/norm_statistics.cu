// The statistics of batch normalization: of a batch for training, of the running ones for inference.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/nn/cuda/kernels/row_sums.cuh"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

// The value that sums of a channel are taken from. An infinite one would make NaN of the mean, which is infinite, too.
template <typename T>
__device__ inline float pivot(T first) {
  const float value = to_float(first);
  return isfinite(value) ? value : 0.0F;
}

template <typename T, int kVector>
__global__ void moments_kernel(const T* x, int64_t rows, int channels, float* partial) {
  const Lane<kVector> lane(channels);
  float sum[kVector] = {}, squares[kVector] = {};
  if (lane.inside) {
    const Pack<T, kVector> first = load<T, kVector>(x + lane.first);
    each_row(
        lane, rows, [&](int64_t row) { return load<T, kVector>(x + row * channels + lane.first); },
        [&](int64_t, const Pack<T, kVector>& pack) {
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            const float difference = to_float(pack.value[v]) - pivot(first.value[v]);
            sum[v] += difference;
            squares[v] = fmaf(difference, difference, squares[v]);
          }
        });
  }
  write_sums(lane, channels, sum, squares, partial);
}

template <typename T>
__global__ __launch_bounds__(kFinishThreads) void finish_moments_kernel(const T* x, int64_t rows, int channels,
                                                                        const float* partial, int parts,
                                                                        NormStatistics s) {
  const int channel = static_cast<int>(blockIdx.x) * kFinishWidth + static_cast<int>(threadIdx.x);
  const double2 sums = finish_sums(partial, parts, channels, channel);
  if (threadIdx.y != 0 || channel >= channels) return;
  const double count = static_cast<double>(rows);
  const double shifted_mean = sums.x / count;
  double variance = sums.y / count - shifted_mean * shifted_mean;
  if (variance < 0) variance = 0;  // rounding; not a number stays one
  const double mean = static_cast<double>(pivot(x[channel])) + shifted_mean;
  const double inverse_deviation = 1.0 / sqrt(variance + s.epsilon);
  s.mean[channel] = static_cast<float>(mean);
  s.inverse_deviation[channel] = static_cast<float>(inverse_deviation);
  const double weight = s.weight == nullptr ? 1.0 : static_cast<double>(s.weight[channel]);
  s.scale[channel] = static_cast<float>(weight * inverse_deviation);
  s.running_mean[channel] = static_cast<float>(s.decay * s.running_mean[channel] + (1 - s.decay) * mean);
  s.running_variance[channel] =
      static_cast<float>(s.decay * s.running_variance[channel] + (1 - s.decay) * s.running_variance_factor * variance);
}

__global__ void inference_scale_kernel(int channels, const float* weight, const float* running_variance, double epsilon,
                                       float* scale) {
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= channels) return;
  const double value = weight == nullptr ? 1.0 : static_cast<double>(weight[channel]);
  scale[channel] = static_cast<float>(value / sqrt(static_cast<double>(running_variance[channel]) + epsilon));
}

}  // namespace

void moments(const RowShape& shape, const void* x, float* partial, cudaStream_t stream) {
  with_element(shape.element, shape.grid.vector, [&](auto element, auto vector) {
    using T = decltype(element);
    moments_kernel<T, decltype(vector)::value>
        <<<blocks_of(shape.grid), threads_of(shape.grid), sums_shared_bytes(shape.grid), stream>>>(
            static_cast<const T*>(x), shape.rows, shape.channels, partial);
  });
  check_cuda(cudaGetLastError(), "moments of a batch");
}

void finish_moments(const RowShape& shape, const void* x, const float* partial, const NormStatistics& statistics,
                    cudaStream_t stream) {
  with_element(shape.element, [&](auto element) {
    using T = decltype(element);
    finish_moments_kernel<T><<<finish_blocks(shape.channels), dim3(kFinishWidth, kFinishDepth), 0, stream>>>(
        static_cast<const T*>(x), shape.rows, shape.channels, partial, shape.grid.row_blocks, statistics);
  });
  check_cuda(cudaGetLastError(), "statistics of a batch");
}

void inference_scale(int channels, const float* weight, const float* running_variance, double epsilon, float* scale,
                     cudaStream_t stream) {
  constexpr int kThreads = 128;
  inference_scale_kernel<<<(channels + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      channels, weight, running_variance, epsilon, scale);
  check_cuda(cudaGetLastError(), "scale of a batch norm");
}

}  // namespace trainyard::nn::cuda
