#include <ATen/ops/zeros.h>

#include "trainyard/core/base/tensors.h"

namespace trainyard::core {

at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::zeros(sizes, dtype);
}

}  // namespace trainyard::core
