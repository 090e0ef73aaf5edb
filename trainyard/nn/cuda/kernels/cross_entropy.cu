// Softmax cross-entropy with label smoothing and its gradient in one kernel: a block a sample, the logits read twice,
// from the cache the second time.
#include <cmath>

#include "trainyard/core/cuda/reduce_block.cuh"
#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

struct Maximum {
  __device__ float operator()(float a, float b) const { return b > a || isnan(b) ? b : a; }
};

__global__ void cross_entropy_kernel(int rows, int classes, const float* logits, const int64_t* labels, float smoothing,
                                     float* losses, float* gradient) {
  const int row = static_cast<int>(blockIdx.x);
  const float* const z = logits + static_cast<int64_t>(row) * classes;
  const int64_t label = labels[row];
  const bool known = label >= 0 && label < classes;

  float largest = -INFINITY;
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) largest = Maximum{}(largest, z[c]);
  largest = reduce_block<kThreads>(largest, Maximum{});
  float exponentials = 0, shifted = 0;  // sums of exp(z - largest) and of z - largest
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    exponentials += expf(z[c] - largest);
    shifted += z[c] - largest;
  }
  exponentials = reduce_block<kThreads>(exponentials, Sum{});
  shifted = reduce_block<kThreads>(shifted, Sum{});
  const float log_sum = logf(exponentials);

  // -sum(target * (z - largest - log_sum)), the targets summing to 1.
  const float even = smoothing / static_cast<float>(classes);
  if (threadIdx.x == 0) {
    losses[row] =
        known ? log_sum - (1 - smoothing) * (z[label] - largest) - (smoothing == 0 ? 0.0F : even * shifted) : NAN;
  }
  if (gradient == nullptr) return;
  float* const g = gradient + static_cast<int64_t>(row) * classes;
  const float share = 1.0F / static_cast<float>(rows);
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    const float probability = expf(z[c] - largest - log_sum);
    g[c] = known ? share * (probability - even - (c == label ? 1 - smoothing : 0.0F)) : NAN;
  }
}

}  // namespace

void cross_entropy(int rows, int classes, const float* logits, const int64_t* labels, double smoothing, float* losses,
                   float* gradient, cudaStream_t stream) {
  cross_entropy_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      rows, classes, logits, labels, static_cast<float>(smoothing), losses, gradient);
  check_cuda(cudaGetLastError(), "softmax cross-entropy");
}

}  // namespace trainyard::nn::cuda
