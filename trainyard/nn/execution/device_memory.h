// The memory of a device that is not the CPU: what a run will keep there, and the error when it does not fit.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Bytes.
struct DeviceMemory {
  int64_t total = 0;
  int64_t limit = 0;  // of what this process may take: total, a part of it, or more where pages move to the host
  int64_t free = 0;   // that nobody holds
  int64_t held = 0;   // by this process: tensors and what it keeps for the next ones
  int64_t used = 0;   // of that, in tensors
};

// Returns "1.50 GiB".
[[nodiscard]] std::string gibibytes(int64_t bytes);

// Estimates what one image needs in a training step, by counting what is kept for the backward: the output of each
// fused unit, in elements of `element_bytes`; a byte an element of max pooling's indices; and the two largest gradients
// that live at a time. It is some ten percent too small, because scratch memory of kernels is not in it. Inference
// keeps the three largest outputs.
int64_t activation_bytes_per_image(const Graph& graph, int64_t element_bytes, bool training);

// Returns how many images fit beside `fixed` bytes (parameters, gradients, slots); 0 where not even one does.
[[nodiscard]] int64_t largest_batch(int64_t limit, int64_t fixed, int64_t bytes_per_image);

// Returns a kNoSpace error: "out of GPU memory with a batch of 256: forward: expected room for 1.50 GiB more, got
// 130.20 GiB held by this process (129.00 GiB in tensors), 0.40 GiB free of 139.80 GiB; a batch of about 192 fits: pass
// --batch_size=192, ...". A batch of 0 means that what was done had none.
[[nodiscard]] core::Error out_of_device_memory(const std::string& where, int64_t asked, const DeviceMemory& memory,
                                               int64_t batch, int64_t fitting_batch);

}  // namespace trainyard::nn
