// Counts what this process gets done, so that other processes can tell long work from work that makes no progress.
//
// Loops whose turns may take long together count each turn: layers of a model, samples of the input, tensors of a
// checkpoint, callbacks, algorithms that are measured. Threads that run on while the work is held, such as those that
// send heartbeats, must not count.
#pragma once

#include <cstdint>

namespace trainyard::core {

// Counts one more turn. Any thread; takes some nanoseconds.
void count_work();
// Returns the number of turns that this process has counted.
[[nodiscard]] uint64_t work_count();

}  // namespace trainyard::core
