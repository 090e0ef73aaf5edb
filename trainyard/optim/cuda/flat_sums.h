// Sums over a parameter set on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/optim/segment_parts.h"

namespace trainyard::optim::cuda {

// Of w^2 over all parts that decay: [] float64. values [total] float or double.
at::Tensor sum_of_decayed_squares(const at::Tensor& values, const SegmentPartTable& parts);

}  // namespace trainyard::optim::cuda
