#include "trainyard/core/base/new_tensor.h"

#include <ATen/ops/zeros.h>

namespace trainyard::core {

at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::zeros(sizes, dtype);
}

}  // namespace trainyard::core
