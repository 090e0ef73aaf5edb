// LibTorch's tensors as the kernels take them.
#pragma once

#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

// Returns the kernels' type of `dtype`. Throws kInternal for a dtype that they do not have.
Element element_of(at::ScalarType dtype);

// The same values without gaps, channels innermost: [N, C, H, W] as channels_last, anything else in plain order.
at::Tensor channels_innermost(const at::Tensor& tensor);

// Of tensors of one shape that are channels_innermost; undefined ones are left out. The grid suits all of them.
RowShape row_shape(std::initializer_list<at::Tensor> tensors);

// [shape.grid.row_blocks, 2, channels] float: what moments() and gradient_moments() write.
at::Tensor partial_sums(const RowShape& shape, const at::Tensor& like);

// Of a tensor that may be undefined: null then.
template <typename T = void>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace trainyard::nn::cuda
