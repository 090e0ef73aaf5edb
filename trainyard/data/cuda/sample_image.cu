// A window of an image, mirrored or not, resized, normalized, in the model's dtype, channels innermost: in one pass. A
// thread makes one pixel.
#include <cmath>

#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/data/cuda/kernels.h"

namespace trainyard::data::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

template <typename T>
__global__ void sample_image_kernel(SampledImage image, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<int64_t>(image.height) * image.width) return;
  const int y = static_cast<int>(i / image.width), x = static_cast<int>(i % image.width);
  const int first_row = image.row_begins[y], last_row = image.row_begins[y + 1];
  float sum[3] = {0, 0, 0};
  for (int column = image.column_begins[x]; column < image.column_begins[x + 1]; ++column) {
    const Tap across = image.column_taps[column];
    // The taps that pad an edge refer to existing pixels, with weight 0.
    if (across.weight == 0) continue;
    float mixed[3] = {0, 0, 0};
    for (int row = first_row; row < last_row; ++row) {
      const Tap down = image.row_taps[row];
      const uint8_t* pixel = image.pixels + down.index * image.row_bytes + static_cast<int64_t>(3) * across.index;
      for (int c = 0; c < 3; ++c) mixed[c] = fmaf(down.weight, static_cast<float>(pixel[c]), mixed[c]);
    }
    for (int c = 0; c < 3; ++c) sum[c] = fmaf(across.weight, mixed[c], sum[c]);
  }
  for (int c = 0; c < 3; ++c) {
    const float value = image.clip ? fminf(fmaxf(sum[c], 0.0F), 255.0F) : sum[c];
    out[3 * i + c] = from_float<T>(fmaf(value, image.scale[c], image.shift[c]));
  }
}

template <typename T>
void launch(const SampledImage& image, void* out, cudaStream_t stream) {
  const int64_t pixels = static_cast<int64_t>(image.height) * image.width;
  const auto blocks = static_cast<unsigned>((pixels + kThreads - 1) / kThreads);
  sample_image_kernel<T><<<blocks, kThreads, 0, stream>>>(image, static_cast<T*>(out));
}

}  // namespace

void sample_image(const SampledImage& image, Element element, void* out, cudaStream_t stream) {
  if (image.height <= 0 || image.width <= 0) return;
  with_element(element, [&](auto type) { launch<decltype(type)>(image, out, stream); });
  check_cuda(cudaGetLastError(), "sampling of an image");
}

}  // namespace trainyard::data::cuda
