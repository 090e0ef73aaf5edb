// Converts LibTorch's tensors to the arguments of kernels.
#pragma once

#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

// Returns the kernels' type of `dtype`. Throws kInternal for a dtype that they do not have.
Element element_of(at::ScalarType dtype);

// Returns the values contiguously with channels innermost: [N, C, H, W] in channels_last, anything else in plain order.
at::Tensor channels_innermost(const at::Tensor& tensor);

// Returns the rows and a grid for tensors of one shape that are channels_innermost; undefined ones are ignored.
RowShape row_shape(std::initializer_list<at::Tensor> tensors);

// Allocates [shape.grid.row_blocks, 2, channels] float for moments() and gradient_moments().
at::Tensor partial_sums(const RowShape& shape, const at::Tensor& like);

// Returns the tensor's data, or null when it is undefined.
template <typename T = void>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace trainyard::nn::cuda
