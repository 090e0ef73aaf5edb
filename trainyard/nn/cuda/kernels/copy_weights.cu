// All weights of a model in the dtype and layout of its kernels, in one launch.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

template <typename T>
__global__ void copy_weights_kernel(const float* values, const WeightCopy* copies, T* out) {
  const WeightCopy copy = copies[blockIdx.x];
  for (int64_t i = copy.begin + threadIdx.x; i < copy.end; i += kThreads) {
    const int64_t inner = i % copy.inner, rest = i / copy.inner;
    const int64_t pixel = rest % copy.pixels, outer = rest / copy.pixels;
    out[copy.destination + i] = from_float<T>(values[copy.source + (outer * copy.inner + inner) * copy.pixels + pixel]);
  }
}

}  // namespace

void copy_weights(const float* values, const WeightCopy* copies, int count, Element element, void* out,
                  cudaStream_t stream) {
  if (count == 0) return;
  with_element(element, [&](auto type) {
    using T = decltype(type);
    copy_weights_kernel<T><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(values, copies, static_cast<T*>(out));
  });
  check_cuda(cudaGetLastError(), "copies of the weights");
}

}  // namespace trainyard::nn::cuda
