// The masks of nn/keep_mask.h on the device, bit for bit: the streams of core/random.h, a thread for four
// elements of a sample. The step is read from the device, so that a captured step draws new masks at each replay.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/core/random/random_bits.h"
#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

namespace random_bits = core::random_bits;

namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

template <typename T>
__global__ void keep_mask_kernel(KeepMask m, const int64_t* step, uint64_t key, uint64_t name_identity, T* mask,
                                 int64_t blocks_each) {
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t sample = own / blocks_each, block = own % blocks_each;
  if (sample >= m.samples) return;
  uint64_t identity = random_bits::with_id(name_identity, static_cast<uint64_t>(*step));
  identity = random_bits::with_id(identity, static_cast<uint64_t>(m.micro_step));
  identity = random_bits::with_id(identity, static_cast<uint64_t>(m.first_sample + sample));
  const auto lower = random_bits::halves(static_cast<uint64_t>(block)), upper = random_bits::halves(identity);
  const auto drawn = random_bits::philox4x32({lower[0], lower[1], upper[0], upper[1]}, random_bits::halves(key));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (block * 4 + i >= m.per_sample) break;
    const float uniform = random_bits::unit_interval(drawn[i]);
    // In double, as fill_keep_mask compares.
    const bool drops = static_cast<double>(uniform) < m.drop;
    mask[sample * m.per_sample + block * 4 + i] = from_float<T>(drops ? 0.0F : m.kept);
  }
}

__global__ void set_step_kernel(int64_t* step, int64_t value, bool advance) {
  *step = advance ? *step + 1 : value;
}

}  // namespace

void keep_mask(const KeepMask& mask, const int64_t* step, Element element, void* out, cudaStream_t stream) {
  const uint64_t key = random_bits::stream_key(mask.seed, mask.name_hash);
  const uint64_t name_identity = random_bits::stream_identity(mask.name_hash);
  const int64_t blocks_each = (mask.per_sample + 3) / 4, count = mask.samples * blocks_each;
  const auto grid = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  with_element(element, [&](auto type) {
    using T = decltype(type);
    keep_mask_kernel<T>
        <<<grid, kThreads, 0, stream>>>(mask, step, key, name_identity, static_cast<T*>(out), blocks_each);
  });
  check_cuda(cudaGetLastError(), "mask of a dropout");
}

void set_step(int64_t* step, int64_t value, bool advance, cudaStream_t stream) {
  set_step_kernel<<<1, 1, 0, stream>>>(step, value, advance);
  check_cuda(cudaGetLastError(), "step counter");
}

}  // namespace trainyard::nn::cuda
