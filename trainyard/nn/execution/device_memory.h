// Estimates the memory that a run needs on an accelerator, and makes the error when it does not fit.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Bytes.
struct DeviceMemory {
  int64_t total = 0;
  int64_t limit = 0;  // of this process: total, a part of it, or more when pages migrate to the host
  int64_t free = 0;   // not used by any process
  int64_t held = 0;   // by this process: tensors and cached memory
  int64_t used = 0;   // part of `held` that is in tensors
};

// Returns "1.50 GiB".
[[nodiscard]] std::string gibibytes(int64_t bytes);

// Estimates what one image needs in a training step, by counting what is kept for the backward: the output of each
// fused unit, in elements of `element_bytes`; one byte per element of max pooling's indices; and the two largest
// gradients that are live at the same time. The estimate is some ten percent too small, because it lacks the scratch
// memory of kernels. For inference it counts the three largest outputs.
int64_t activation_bytes_per_image(const Graph& graph, int64_t element_bytes, bool training);

// Returns how many images fit in addition to `fixed` bytes (parameters, gradients, slots); 0 when not even one fits.
[[nodiscard]] int64_t largest_batch(int64_t limit, int64_t fixed, int64_t bytes_per_image);

// Returns a kNoSpace error: "out of GPU memory with a batch of 256: forward: expected room for 1.50 GiB more, got
// 130.20 GiB held by this process (129.00 GiB in tensors), 0.40 GiB free of 139.80 GiB; a batch of about 192 fits: pass
// --batch_size=192, ...". A batch of 0 means that the work had no batch.
[[nodiscard]] core::Error out_of_device_memory(const std::string& where, int64_t asked, const DeviceMemory& memory,
                                               int64_t batch, int64_t fitting_batch);

}  // namespace trainyard::nn
