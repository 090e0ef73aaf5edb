// Translates LibTorch's streams and dtypes into the types of our kernels.
//
// The rest of core/cuda is free of LibTorch, so that nvcc compiles kernels quickly. This header is the exception,
// because data, nn, optim and parallel all need it. It includes c10 only.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "trainyard/core/cuda/element.h"

namespace trainyard::core::cuda {

// Returns the calling thread's stream on its current GPU: where ATen's operators of this thread run.
inline cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream();
}

// Returns nothing for a dtype that the kernels do not have.
inline std::optional<Element> element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return Element::kFloat;
    case c10::ScalarType::Half:
      return Element::kHalf;
    case c10::ScalarType::BFloat16:
      return Element::kBFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace trainyard::core::cuda
