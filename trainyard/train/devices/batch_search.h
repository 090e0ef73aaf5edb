// The largest batch that there is memory for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace trainyard::train {

struct FoundBatch {
  int64_t batch = 0;                    // images a device
  int64_t bytes = 0;                    // that it needs
  std::optional<int64_t> bytes_beyond;  // what one image more would need; unset: `most` was reached
  int asked = 0;                        // how many batches were tried
};

// Searches from 1 to `most` for the largest batch of which `bytes_of` is at most `budget`, by doubling and then by
// halving the interval, as tf_cnn_benchmarks does. Calls `bytes_of` once for each batch that it tries, always the same
// ones for the same answers. Where memory does not grow with the batch everywhere, the result fits and the batch behind
// it does not. Throws kNoSpace when one image does not fit, and what `bytes_of` throws.
FoundBatch search_largest_batch(const std::function<int64_t(int64_t batch)>& bytes_of, int64_t budget, int64_t most);

// Bytes that a search may fill.
struct MemoryBudget {
  int64_t bytes = 0;
  bool free_only = false;  // less than the usual part of the machine's memory is free, and it is what is free
};

// Returns three quarters of the memory that the machine has and its control groups allow this process; or what is free
// of it where that is less, in whole sixteenths, so that small changes of what others hold change nothing. Arguments of
// 0 are not known; throws kUnsupported where `machine` is.
MemoryBudget usual_memory_budget(int64_t machine, std::optional<int64_t> allowed, int64_t free);

}  // namespace trainyard::train
