// Whether numbers are finite: one pass that only reads, at the speed of memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::optim {

// False when an element is NaN or infinite. float and double in the host's memory without gaps are read on the calling
// thread's intra-op threads; all else goes through ATen, which waits for a device.
bool all_finite(const at::Tensor& values);

// "NaN", "inf", "NaN and inf", or "" when all are finite. For messages: not fast.
const char* non_finite_kind(const at::Tensor& values);

}  // namespace trainyard::optim
