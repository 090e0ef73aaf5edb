// The types of numbers that kernels for NVIDIA GPUs read and write. Kernels compute in float, whatever the type.
#pragma once

namespace trainyard::core::cuda {

enum class Element { kFloat, kHalf, kBFloat16 };

}  // namespace trainyard::core::cuda
