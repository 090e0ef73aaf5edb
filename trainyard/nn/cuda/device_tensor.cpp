#include "trainyard/nn/cuda/device_tensor.h"

#include <cstdint>
#include <optional>

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/libtorch.h"

namespace trainyard::nn::cuda {
namespace {

bool aligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// Returns the number of multiprocessors of the current device. The driver answers without accessing the device.
int multiprocessors() {
  int device = 0, count = 0;
  core::cuda::check_cuda(cudaGetDevice(&device), "current GPU");
  core::cuda::check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "size of the GPU");
  return count;
}

}  // namespace

Element element_of(at::ScalarType dtype) {
  const std::optional<Element> element = core::cuda::element_of(dtype);
  if (element) return *element;
  throw core::Error(core::ErrorCode::kInternal, fmt::format("no CUDA kernel for {}", at::toString(dtype)));
}

at::Tensor channels_innermost(const at::Tensor& tensor) {
  return tensor.contiguous(tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

RowShape row_shape(std::initializer_list<at::Tensor> tensors) {
  RowShape shape;
  bool all_aligned = true;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    shape.channels = static_cast<int>(tensor.size(1));
    shape.rows = tensor.numel() / tensor.size(1);
    shape.element = element_of(tensor.scalar_type());
    all_aligned = all_aligned && aligned(tensor);
  }
  const int bytes = shape.element == Element::kFloat ? 4 : 2;
  shape.grid = row_grid(shape.rows, shape.channels, bytes, all_aligned, multiprocessors());
  return shape;
}

at::Tensor partial_sums(const RowShape& shape, const at::Tensor& like) {
  return at::empty({shape.grid.row_blocks, 2, shape.channels}, like.options().dtype(at::kFloat));
}

}  // namespace trainyard::nn::cuda
