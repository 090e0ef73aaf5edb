// Checks whether numbers are finite, in one pass at the speed of memory.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainyard::optim {

// Returns false when an element is NaN or infinite. Contiguous float and double in host memory are read on the calling
// thread's intra-op threads; anything else uses ATen, which waits for a device.
bool all_finite(const at::Tensor& values);

// Does the same for `count` numbers in host memory, on the calling thread.
bool all_finite(const float* values, int64_t count);
bool all_finite(const double* values, int64_t count);

// Returns "NaN", "inf" or "NaN and inf", and "" when all are finite. For messages: not fast.
const char* non_finite_kind(const at::Tensor& values);

}  // namespace trainyard::optim
