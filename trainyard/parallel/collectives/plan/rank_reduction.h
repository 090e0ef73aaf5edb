// Reduces the buffers of all ranks element by element, in place. In-process collectives run it on shared memory,
// collectives between processes in parts. Elements are combined in rank order, in float for the 16-bit types, so that
// the result does not depend on how the ranks are distributed over processes.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

// Returns true for float, double, bfloat16, half, int64 and int32; there is no mean of integers.
bool can_reduce(at::ScalarType type, core::ReduceOp op);

// Turns elements [begin, end) of each buffer into the reduction of all buffers' elements there. A NaN in any of them
// gives NaN, also for kMax and kMin. Different threads may reduce ranges that do not overlap at once.
void reduce_range(at::ScalarType type, core::ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end);

// Writes the reduction of elements [begin, end) of the buffers to `result`, which holds end - begin elements of `type`:
// the numbers that reduce_range() makes. It may be one of the buffers' own elements there.
void reduce_to(at::ScalarType type, core::ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end,
               void* result);

// The following functions reduce when a process has the buffers of some ranks only. The result of the earlier ranks is
// passed on as partial results. This function returns their type, in which sums are computed.
at::ScalarType partial_type(at::ScalarType type);

// Combines `before`, the partial results of the ranks before (null: there are none), with elements [begin, end) of the
// buffers, in this order, into `partial`. Both are of partial_type(type) and hold end - begin elements; they may be the
// same memory, and `partial` may be buffers[0] + begin where the types are equal.
void reduce_partly(at::ScalarType type, core::ReduceOp op, const void* before, std::span<void* const> buffers,
                   int64_t begin, int64_t end, void* partial);

// Combines `before` with the buffers of the last ranks, and writes the result into each of these buffers. `ranks` is
// the number of all ranks.
void finish_reduction(at::ScalarType type, core::ReduceOp op, const void* before, std::span<void* const> buffers,
                      int64_t begin, int64_t end, int ranks);

// Writes `sums`, the partial results of all ranks, into elements [begin, end) of each buffer, divided by the number of
// ranks for kMean.
void store_result(at::ScalarType type, core::ReduceOp op, const void* sums, std::span<void* const> buffers,
                  int64_t begin, int64_t end, int ranks);

// Converts `elements` numbers, rounding to the nearest, ties to even. One type is float or double, the other one
// bfloat16 or half. Throws kInternal for other types.
void convert(at::ScalarType from_type, const void* from, at::ScalarType to_type, void* to, int64_t elements);

}  // namespace trainyard::parallel
