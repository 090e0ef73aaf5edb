// Declares the input's CUDA kernel, on raw pointers: no LibTorch here, so that nvcc compiles it quickly.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "trainyard/core/cuda/element.h"
#include "trainyard/data/image/tap.h"

namespace trainyard::data::cuda {

// Describes how an image is sampled; all pointers are to device memory. Output row y is the weighted sum of the rows of
// row_taps[row_begins[y], row_begins[y + 1]), and columns likewise (data/image/resize_axis.h): windows, mirroring and
// all resize methods are expressed as taps.
struct SampledImage {
  const uint8_t* pixels = nullptr;     // RGB, one behind the other
  int64_t row_bytes = 0;               // from row to row
  const int* row_begins = nullptr;     // [height + 1]
  const int* column_begins = nullptr;  // [width + 1]
  const Tap* row_taps = nullptr;
  const Tap* column_taps = nullptr;
  int height = 0, width = 0;                         // size of the result
  float scale[3] = {1, 1, 1}, shift[3] = {0, 0, 0};  // value * scale + shift, by channel
  bool clip = false;                                 // values are cut off at 0 and 255 before that
};

// Launches a kernel on `stream` that fills out [height, width, 3] of `element`. Rows are mixed before columns, as the
// CPU does (data/image/resize.h). Throws kInternal when the launch fails.
void sample_image(const SampledImage& image, core::cuda::Element element, void* out, cudaStream_t stream);

}  // namespace trainyard::data::cuda
