// Finds the largest batch that fits into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace trainyard::train {

struct FoundBatch {
  int64_t batch = 0;                    // images a device
  int64_t bytes = 0;                    // bytes that this batch needs
  std::optional<int64_t> bytes_beyond;  // bytes that one image more would need; unset: `most` was reached
  int asked = 0;                        // number of batches that were tried
};

// Searches from 1 to `most` for the largest batch whose `bytes_of` is at most `budget`, by doubling and then by
// bisection, as tf_cnn_benchmarks does. Calls `bytes_of` once for each batch that it tries; the sequence depends on the
// results only. When memory does not grow monotonically with the batch, the result fits and the next larger batch does
// not. Throws kNoSpace when one image does not fit, and what `bytes_of` throws.
FoundBatch search_largest_batch(const std::function<int64_t(int64_t batch)>& bytes_of, int64_t budget, int64_t most);

struct MeasuredBatch {
  int64_t batch = 0;   // the largest that was found to fit
  int64_t beyond = 0;  // the smallest that was found not to fit; 0: `most` fits
};

// Searches from 1 to `most` for the largest batch for which `fits` is true, where each question costs a trial: begins
// with `first`, doubles while it fits, or halves until it does, and then halves the gap to the smallest batch that does
// not fit until it is at most `tolerance` of the batch. Throws kNoSpace when one image does not fit, and what `fits`
// throws.
MeasuredBatch search_measured_batch(const std::function<bool(int64_t batch)>& fits, int64_t first, int64_t most,
                                    double tolerance);

// Bytes that a search may fill.
struct MemoryBudget {
  int64_t bytes = 0;
  bool free_only =
      false;  // true when less than the usual part of the machine's memory is free: the budget is then the free memory
};

// Returns three quarters of the memory that the machine has and its control groups allow this process, or the free
// memory when that is less, in whole sixteenths, so that small changes by other programs change nothing. Arguments of 0
// are unknown; throws kUnsupported when `machine` is 0.
MemoryBudget usual_memory_budget(int64_t machine, std::optional<int64_t> allowed, int64_t free);

}  // namespace trainyard::train
