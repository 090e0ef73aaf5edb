// The kernels of a step in addition to the update: sums of squares, the check for infinite gradients, the loss scale,
// the step's numbers.
#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/pack.cuh"
#include "trainyard/core/cuda/reduce_block.cuh"
#include "trainyard/optim/cuda/kernels.h"

namespace trainyard::optim::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

template <typename T>
__global__ void part_squares_kernel(const T* values, const SegmentPart* parts, double* sums) {
  const SegmentPart part = parts[blockIdx.x];
  double sum = 0;
  if (part.decays != 0) {
    for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kThreads) {
      const double value = static_cast<double>(values[part.begin + i]);
      sum += value * value;
    }
  }
  sum = reduce_block<kThreads>(sum, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void add_up_kernel(const double* sums, int count, double* total) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += sums[i];
  sum = reduce_block<kThreads>(sum, Sum{});
  if (threadIdx.x == 0) *total = sum;
}

// `count` is a multiple of 16, as all flat blocks are.
template <typename T>
__global__ void find_non_finite_kernel(const T* gradients, int64_t count, int* found) {
  constexpr int kSize = kWidestPack<T>;
  bool bad = false;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kSize;
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kSize; i < count; i += stride) {
    const Pack<T> pack = load(gradients + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) bad = bad || !isfinite(pack.value[k]);
  }
  // Who writes does not matter: all write the same.
  if (bad) *found = 1;
}

__global__ void apply_loss_scale_kernel(LossScale* scale, const int* found, LossScaleSteps rule,
                                        double* inverse_loss_scale, double* found_inf) {
  *inverse_loss_scale = 1.0 / scale->scale;
  *found_inf = found != nullptr && *found != 0 ? 1.0 : 0.0;
  if (found != nullptr) *scale = next_loss_scale(*scale, *found != 0, rule);
}

__global__ void write_fields_kernel(double* fields, StepFields values, int count) {
  if (static_cast<int>(threadIdx.x) < count) fields[threadIdx.x] = values.value[threadIdx.x];
}

}  // namespace

void part_squares(bool is_double, const void* values, const SegmentPart* parts, int part_count, double* sums,
                  cudaStream_t stream) {
  if (part_count == 0) return;
  const auto blocks = static_cast<unsigned>(part_count);
  if (is_double) {
    part_squares_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const double*>(values), parts, sums);
  } else {
    part_squares_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(values), parts, sums);
  }
  check_cuda(cudaGetLastError(), "sum of squares");
}

void add_up(const double* sums, int count, double* total, cudaStream_t stream) {
  add_up_kernel<<<1, kThreads, 0, stream>>>(sums, count, total);
  check_cuda(cudaGetLastError(), "sum of squares");
}

void find_non_finite(bool is_double, const void* gradients, int64_t count, int* found, cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(found, 0, sizeof(int), stream), "look for infinite gradients");
  if (count == 0) return;
  const int64_t packs = count / (is_double ? 2 : 4);
  const int64_t wanted = (packs + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
  if (is_double) {
    find_non_finite_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const double*>(gradients), count, found);
  } else {
    find_non_finite_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(gradients), count, found);
  }
  check_cuda(cudaGetLastError(), "look for infinite gradients");
}

void apply_loss_scale(LossScale* scale, const int* found, const LossScaleSteps& rule, double* inverse_loss_scale,
                      double* found_inf, cudaStream_t stream) {
  apply_loss_scale_kernel<<<1, 1, 0, stream>>>(scale, found, rule, inverse_loss_scale, found_inf);
  check_cuda(cudaGetLastError(), "loss scale");
}

void write_fields(double* fields, const StepFields& values, int count, cudaStream_t stream) {
  write_fields_kernel<<<1, 8, 0, stream>>>(fields, values, count);
  check_cuda(cudaGetLastError(), "numbers of a step");
}

}  // namespace trainyard::optim::cuda
