// Makes tensors in host memory. Sources that need nothing else of LibTorch include this header, because LibTorch's own
// headers for it take longer to compile than all of this library's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Returns a tensor of zeros. Throws what LibTorch throws for negative sizes.
[[nodiscard]] at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
