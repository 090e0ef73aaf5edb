// The masks of nn/keep_mask.h on the device, bit for bit: the streams of core/random.h once more, a thread for four
// elements of a sample. The step is read from the device, so that a captured step draws new masks at each replay.
#include "trainyard/nn/cuda/element.cuh"

namespace trainyard::nn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;

// As core/random.cpp's; the conformance suite holds the two to each other.
__host__ __device__ inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

__device__ inline uint64_t with_id(uint64_t identity, uint64_t id) {
  return mix((identity ^ mix(id + kGoldenRatio)) + kGoldenRatio);
}

struct Block {
  uint32_t value[4];
};

__device__ inline Block philox4x32(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53} * counter.value[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57} * counter.value[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.value[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.value[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  return counter;
}

template <typename T>
__global__ void keep_mask_kernel(KeepMask m, const int64_t* step, uint64_t key, uint64_t name_identity, T* mask,
                                 int64_t blocks_each) {
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t sample = own / blocks_each, block = own % blocks_each;
  if (sample >= m.samples) return;
  uint64_t identity = with_id(name_identity, static_cast<uint64_t>(*step));
  identity = with_id(identity, static_cast<uint64_t>(m.micro_step));
  identity = with_id(identity, static_cast<uint64_t>(m.first_sample + sample));
  const Block drawn = philox4x32({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                   static_cast<uint32_t>(identity), static_cast<uint32_t>(identity >> 32)}},
                                 static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  for (int i = 0; i < 4 && block * 4 + i < m.per_sample; ++i) {
    const float uniform = static_cast<float>(drawn.value[i] >> 8) * 0x1p-24F;
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
  const uint64_t key = mix(mix(mask.seed + kGoldenRatio) ^ mask.name_hash);
  const uint64_t name_identity = mix(mask.name_hash + kGoldenRatio);
  const int64_t blocks_each = (mask.per_sample + 3) / 4, count = mask.samples * blocks_each;
  const auto grid = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  with_element(element, 1, [&](auto type, auto) {
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
