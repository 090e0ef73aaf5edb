// Element by element reduction over the buffers of all ranks, in place: in-process collectives run it on shared memory.
// Elements are combined in rank order, in float for the 16-bit types, so the result depends on nothing else.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

// Returns true for float, double, bfloat16, half, int64 and int32; there is no mean of integers.
bool can_reduce(at::ScalarType type, core::ReduceOp op);

// Turns elements [begin, end) of each buffer into the reduction of all buffers' elements there. A NaN in any of them
// gives NaN, also for kMax and kMin. Different threads may reduce ranges that do not overlap at once.
void reduce_range(at::ScalarType type, core::ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end);

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
